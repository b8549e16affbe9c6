#include "services/engine/prefix_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/check.h"

namespace epic {
namespace {

size_t CommonRows(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin();
}

}  // namespace

PrefixCache::Hit PrefixCache::Find(std::string_view tenant, std::span<const TokenId> tokens) {
  size_t best_rows = 0;
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->tenant != tenant) continue;
    const size_t rows = CommonRows(entry->tokens, tokens);
    if (rows > best_rows) {
      best_rows = rows;
      best = entry;
    }
  }
  if (best == entries_.end()) return {};
  entries_.splice(entries_.begin(), entries_, best);
  return {best->block, static_cast<uint32_t>(best_rows)};
}

void PrefixCache::Insert(std::string tenant, std::vector<TokenId> tokens,
                         std::shared_ptr<const KvBlock> block) {
  EPIC_CHECK(block->capacity() == tokens.size());
  Entry fresh{std::move(tenant), std::move(tokens), std::move(block)};
  if (fresh.tokens.empty() || fresh.Bytes() > capacity_bytes_) return;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto current = entry++;
    if (current->tenant != fresh.tenant) continue;
    const size_t common = CommonRows(current->tokens, fresh.tokens);
    if (common == fresh.tokens.size()) {
      entries_.splice(entries_.begin(), entries_, current);
      return;
    }
    if (common == current->tokens.size()) Erase(current);
  }
  bytes_ += fresh.Bytes();
  entries_.push_front(std::move(fresh));
  while (bytes_ > capacity_bytes_) Erase(std::prev(entries_.end()));
}

void PrefixCache::Erase(std::list<Entry>::iterator entry) {
  bytes_ -= entry->Bytes();
  entries_.erase(entry);
}

}  // namespace epic
