// Exactly computed beginnings of prompts, for the strategy `prefix`: least recently used first out, bounded
// in bytes.
//
// Only rows that an exact prefill computed (or copies of exact objects' rows) are published here; a lookup
// finds the tenant's entry with the longest common beginning. Entries of one tenant are nothing to another:
// neither found nor replaced nor refreshed; only the bound in bytes is common. Owned by the engine; engine
// thread only.
#ifndef EPIC_SERVICES_ENGINE_PREFIX_CACHE_H_
#define EPIC_SERVICES_ENGINE_PREFIX_CACHE_H_

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/storage/cache_id.h"
#include "services/engine/kv_block.h"

namespace epic {

class PrefixCache {
 public:
  // capacity_bytes 0 keeps nothing.
  explicit PrefixCache(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  struct Hit {
    std::shared_ptr<const KvBlock> block;  // null when rows == 0
    uint32_t rows = 0;
  };
  // The longest common beginning of `tokens` and an entry of `tenant`; that entry becomes the most recent
  // one.
  Hit Find(std::string_view tenant, std::span<const TokenId> tokens);

  // Row r of the block holds token r at position r. Replaces the tenant's entries that are beginnings of this
  // one; a no-op when one of them already begins with `tokens`, or when the entry alone is over the capacity.
  // REQUIRES: block->capacity() == tokens.size().
  void Insert(std::string tenant, std::vector<TokenId> tokens, std::shared_ptr<const KvBlock> block);

  uint64_t bytes() const { return bytes_; }
  size_t entries() const { return entries_.size(); }
  // Whether rows of that many bytes could be kept at all.
  bool Takes(uint64_t bytes) const { return bytes <= capacity_bytes_; }

 private:
  struct Entry {
    std::string tenant;
    std::vector<TokenId> tokens;
    std::shared_ptr<const KvBlock> block;
    uint64_t Bytes() const { return block->bytes() + tokens.size() * sizeof(TokenId); }
  };
  void Erase(std::list<Entry>::iterator entry);

  const uint64_t capacity_bytes_;
  uint64_t bytes_ = 0;
  std::list<Entry> entries_;  // most recent first
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_PREFIX_CACHE_H_
