// Tells the hand-over (common/storage/shm) where the store's objects are in its arena. Owned by whoever owns
// the store and the server; thread-safe. Not here: the socket, and who may connect.
#ifndef EPIC_SERVICES_KV_STORE_CORE_STORE_LEASES_H_
#define EPIC_SERVICES_KV_STORE_CORE_STORE_LEASES_H_

#include <cstdint>
#include <string>

#include "common/storage/shm/lease_source.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {

class StoreLeases final : public shm::LeaseSource {
 public:
  // `store` outlives this.
  explicit StoreLeases(StoreCore* store) : store_(store) {}

  // A zero-copy lease holds the object's region (arena.h), whatever becomes of the object.
  Lease Find(const shm::LeaseRequest& request) override;
  bool IsCurrent(const std::string& tenant, const ObjectKey& key, uint64_t generation) override;

 private:
  StoreCore* const store_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_STORE_LEASES_H_
