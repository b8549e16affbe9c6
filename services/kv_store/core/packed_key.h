// Keys of the tables in memory, a third of the size of their text: a tenant is a number of the table's own, a
// Cache ID its 20 bytes. Values; any thread.
#ifndef EPIC_SERVICES_KV_STORE_CORE_PACKED_KEY_H_
#define EPIC_SERVICES_KV_STORE_CORE_PACKED_KEY_H_

#include <array>
#include <compare>
#include <cstdint>
#include <utility>

#include "common/storage/cache_id.h"

namespace epic::kv_store {

// In the order of the IDs' text. All zero: the empty ID.
struct PackedId {
  std::array<uint8_t, 20> bytes{};
  auto operator<=>(const PackedId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const PackedId& id) {
    return H::combine(std::move(h), id.bytes);
  }
};

PackedId Pack(const CacheId& id);
CacheId Unpack(const PackedId& id);

struct PackedContext {
  uint32_t tenant = 0;
  PackedId id;
  auto operator<=>(const PackedContext&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const PackedContext& context) {
    return H::combine(std::move(h), context.tenant, context.id);
  }
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_PACKED_KEY_H_
