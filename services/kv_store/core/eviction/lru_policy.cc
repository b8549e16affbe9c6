#include "services/kv_store/core/eviction/lru_policy.h"

namespace epic::kv_store {

EntrySlot LruPolicy::Next(const MayGo& may_go) {
  for (uint64_t left = queue_.entries(); left > 0; --left) {
    const EntrySlot slot = queue_.oldest();
    if (may_go((*pool_)[slot])) return slot;
    Use(slot);
  }
  return kNoEntry;
}

std::unique_ptr<EvictionPolicy> LruPolicy::CloneOnto(EntryPool* pool) const {
  auto clone = std::make_unique<LruPolicy>(pool);
  clone->queue_ = queue_;
  return clone;
}

}  // namespace epic::kv_store
