// Keys of the tables in memory, a third of the size of their text: a tenant is a number of the table's own, a
// Cache ID its 20 bytes. Values; any thread.
#ifndef EPIC_SERVICES_KV_STORE_CORE_PACKED_KEY_H_
#define EPIC_SERVICES_KV_STORE_CORE_PACKED_KEY_H_

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/storage/cache_id.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

// In the order of the IDs' text. All zero: the empty ID.
struct PackedId {
  std::array<uint8_t, 20> bytes{};
  auto operator<=>(const PackedId&) const = default;
  uint64_t first_bytes() const {
    uint64_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};

PackedId Pack(const CacheId& id);
CacheId Unpack(const PackedId& id);

struct PackedContext {
  uint32_t tenant = 0;
  PackedId id;
  auto operator<=>(const PackedContext&) const = default;
  // IDs are cut from SHA-256: a few of their bytes are as good as all.
  template <typename H>
  friend H AbslHashValue(H h, const PackedContext& context) {
    return H::combine(std::move(h), context.tenant, context.id.first_bytes());
  }
};

// How a lookup names a context: packed once, for every table it goes to.
struct ContextRef {
  std::string_view tenant;
  PackedId id;
};
// `key` outlives what is returned.
inline ContextRef RefOf(const ContextKey& key) { return {key.tenant, Pack(key.id)}; }

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_PACKED_KEY_H_
