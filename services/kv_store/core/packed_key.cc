#include "services/kv_store/core/packed_key.h"

#include <string>
#include <string_view>

#include "common/base/check.h"

namespace epic::kv_store {
namespace {

constexpr std::string_view kPrefix = "ctx_";
constexpr size_t kGroups = 4;  // of 8 characters, 5 bits each, and of 5 bytes

// Characters of base32 by their place in ASCII, so that packed IDs have the order of the text.
constexpr std::string_view kInOrder = "234567abcdefghijklmnopqrstuvwxyz";

constexpr std::array<uint8_t, 256> kRankOf = [] {
  std::array<uint8_t, 256> ranks{};
  for (size_t rank = 0; rank < kInOrder.size(); ++rank) {
    ranks[static_cast<uint8_t>(kInOrder[rank])] = static_cast<uint8_t>(rank);
  }
  return ranks;
}();

}  // namespace

PackedId Pack(const CacheId& id) {
  PackedId packed;
  if (id.empty()) return packed;
  const std::string_view text = std::string_view(id.text()).substr(kPrefix.size());
  EPIC_CHECK(text.size() == 8 * kGroups);
  for (size_t group = 0; group < kGroups; ++group) {
    uint64_t bits = 0;
    for (const char c : text.substr(8 * group, 8)) bits = bits << 5 | kRankOf[static_cast<uint8_t>(c)];
    for (size_t i = 0; i < 5; ++i) packed.bytes[5 * group + i] = static_cast<uint8_t>(bits >> (32 - 8 * i));
  }
  return packed;
}

CacheId Unpack(const PackedId& id) {
  if (id == PackedId()) return {};
  std::string text(kPrefix);
  for (size_t group = 0; group < kGroups; ++group) {
    uint64_t bits = 0;
    for (size_t i = 0; i < 5; ++i) bits = bits << 8 | id.bytes[5 * group + i];
    for (size_t i = 0; i < 8; ++i) text += kInOrder[bits >> (35 - 5 * i) & 31];
  }
  const auto parsed = CacheId::Parse(text);
  EPIC_CHECK(parsed.ok());
  return *parsed;
}

}  // namespace epic::kv_store
