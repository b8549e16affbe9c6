#include "services/kv_store/core/store_leases.h"

#include <utility>

#include "common/status/error.h"

namespace epic::kv_store {

shm::LeaseSource::Lease StoreLeases::Find(const shm::LeaseRequest& request) {
  Lease lease;
  const auto acquired = store_->Acquire(request.tenant, request.key, request.layout);
  if (!acquired.ok()) {
    lease.answer.outcome = shm::LeaseOutcome::kRefused;
    lease.answer.reason = MessageOf(acquired.status());
    return lease;
  }
  if (acquired->object == nullptr) {
    lease.answer.cause = acquired->cause;
    return lease;
  }
  // StoreCore has no other objects.
  const auto& object = static_cast<const HostObject&>(*acquired->object);
  if (request.zero_copy) {
    lease.hold = object.region().TryHold();
    if (lease.hold == nullptr) {
      lease.answer.outcome = shm::LeaseOutcome::kMustCopy;
      return lease;
    }
  }
  lease.answer.outcome = shm::LeaseOutcome::kLeased;
  shm::LeasedObject& leased = lease.answer.object;
  leased.generation = object.region().generation();
  leased.build = object.build();
  for (uint32_t layer = 0; layer < request.layout.layers; ++layer) {
    leased.layer_offsets.push_back(SlabOffsetIn(object.region(), request.layout, layer));
  }
  leased.block_crcs = object.head().block_crcs;
  return lease;
}

bool StoreLeases::IsCurrent(const std::string& tenant, const ObjectKey& key, uint64_t generation) {
  return store_->GenerationInMemory(tenant, key) == generation;
}

}  // namespace epic::kv_store
