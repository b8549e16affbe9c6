#include "services/kv_store/core/packed_record.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>

#include "common/base/check.h"

namespace epic::kv_store {
namespace {

constexpr size_t kHeadWords = 3;

uint16_t WordAt(const char* texts, size_t word) {
  uint16_t value = 0;
  std::memcpy(&value, texts + word * sizeof value, sizeof value);
  return value;
}

// The text of a block, behind its lengths.
const char* TextOf(const char* texts) { return texts + (kHeadWords + WordAt(texts, 2)) * sizeof(uint16_t); }

std::unique_ptr<char[]> PackTexts(const ContextRecord& record) {
  if (record.name.empty() && record.error.empty() && record.tags.empty()) return nullptr;
  const auto length = [](size_t size) {
    EPIC_CHECK(size <= std::numeric_limits<uint16_t>::max());
    return static_cast<uint16_t>(size);
  };
  std::vector<uint16_t> lengths = {length(record.name.size()), length(record.error.size()),
                                   length(record.tags.size())};
  std::string text = record.name + record.error;
  for (const std::string& tag : record.tags) {
    lengths.push_back(length(tag.size()));
    text += tag;
  }
  const size_t head = lengths.size() * sizeof(uint16_t);
  std::unique_ptr<char[]> texts(new char[head + text.size()]);
  std::memcpy(texts.get(), lengths.data(), head);
  std::memcpy(texts.get() + head, text.data(), text.size());
  return texts;
}

template <typename Visit>
void ForEachTag(const char* texts, const Visit& visit) {
  if (texts == nullptr) return;
  const char* tag = TextOf(texts) + WordAt(texts, 0) + WordAt(texts, 1);
  for (size_t i = 0; i < WordAt(texts, 2); ++i) {
    const size_t bytes = WordAt(texts, kHeadWords + i);
    visit(std::string_view(tag, bytes));
    tag += bytes;
  }
}

template <typename T>
uint32_t Saturated(T value) {
  constexpr T kHighest = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::clamp<T>(value, 0, kHighest));
}

std::optional<int64_t> OptionalOf(bool has, int64_t value) {
  return has ? std::optional<int64_t>(value) : std::nullopt;
}

}  // namespace

std::string_view PackedRecord::name() const {
  return texts == nullptr ? std::string_view()
                          : std::string_view(TextOf(texts.get()), WordAt(texts.get(), 0));
}

std::string_view PackedRecord::error() const {
  if (texts == nullptr) return {};
  return {TextOf(texts.get()) + WordAt(texts.get(), 0), WordAt(texts.get(), 1)};
}

std::vector<std::string> PackedRecord::tags() const {
  std::vector<std::string> tags;
  ForEachTag(texts.get(), [&](std::string_view tag) { tags.emplace_back(tag); });
  return tags;
}

bool PackedRecord::HasTag(std::string_view tag) const {
  bool found = false;
  ForEachTag(texts.get(), [&](std::string_view other) { found = found || other == tag; });
  return found;
}

bool RecordPacker::PrefixLess::operator()(const CompilePrefixSpec& a, const CompilePrefixSpec& b) const {
  return std::tie(a.kind, a.context_id, a.tokens) < std::tie(b.kind, b.context_id, b.tokens);
}

PackedRecord RecordPacker::Pack(const ContextRecord& record) {
  PackedRecord packed;
  packed.key = {tenants_.Take(record.tenant), kv_store::Pack(record.id)};
  packed.identity = identities_.Take(record.model_identity);
  packed.model = models_.Take(record.model);
  packed.compile_prefix = prefixes_.Take(record.compile_prefix);
  packed.token_count = record.token_count;
  packed.created_at_ms = record.created_at_ms;
  packed.compile_ms = Saturated(record.compile_ms);
  packed.ttl_seconds = record.ttl_seconds.value_or(0);
  packed.expires_at_ms = record.expires_at_ms.value_or(PackedRecord::kNever);
  packed.pin_until_ms = record.pin_until_ms.value_or(0);
  packed.last_used_at_ms = record.last_used_at_ms;
  packed.hits = Saturated(record.hits);
  const HybridTime changed[] = {record.expiry_changed, record.pin_changed, record.tags_changed,
                                record.name_changed, record.created};
  for (size_t field = 0; field < std::size(changed); ++field) {
    packed.changed_ms[field] = changed[field].unix_ms;
    packed.changed_counter[field] = changed[field].counter;
  }
  packed.texts = PackTexts(record);
  packed.durability = record.durability;
  packed.state = record.state;
  packed.pin = record.pin;
  packed.hidden = record.hidden;
  packed.has_ttl = record.ttl_seconds.has_value();
  packed.pin_ends = record.pin_until_ms.has_value();
  return packed;
}

void RecordPacker::Release(const PackedRecord& record) {
  tenants_.Release(record.key.tenant);
  identities_.Release(record.identity);
  models_.Release(record.model);
  prefixes_.Release(record.compile_prefix);
}

ContextRecord RecordPacker::Unpack(const PackedRecord& packed) const {
  ContextRecord record;
  record.tenant = tenants_[packed.key.tenant];
  record.id = kv_store::Unpack(packed.key.id);
  record.model_identity = identities_[packed.identity];
  record.model = models_[packed.model];
  record.token_count = packed.token_count;
  record.created_at_ms = packed.created_at_ms;
  record.hidden = packed.hidden;
  record.compile_prefix = prefixes_[packed.compile_prefix];
  record.durability = packed.durability;
  record.state = packed.state;
  record.compile_ms = packed.compile_ms;
  record.error = packed.error();
  record.ttl_seconds = OptionalOf(packed.has_ttl, packed.ttl_seconds);
  record.expires_at_ms = OptionalOf(packed.expires(), packed.expires_at_ms);
  record.pin = packed.pin;
  record.pin_until_ms = OptionalOf(packed.pin_ends, packed.pin_until_ms);
  record.tags = packed.tags();
  record.name = packed.name();
  HybridTime* const changed[] = {&record.expiry_changed, &record.pin_changed, &record.tags_changed,
                                 &record.name_changed, &record.created};
  for (size_t field = 0; field < std::size(changed); ++field) {
    *changed[field] = {packed.changed_ms[field], packed.changed_counter[field]};
  }
  record.last_used_at_ms = packed.last_used_at_ms;
  record.hits = packed.hits;
  return record;
}

}  // namespace epic::kv_store
