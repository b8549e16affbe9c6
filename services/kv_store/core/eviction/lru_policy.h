// Least recently used goes first. See eviction_policy.h for the contract.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_LRU_POLICY_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_LRU_POLICY_H_

#include <memory>

#include "services/kv_store/core/eviction/entry_queue.h"
#include "services/kv_store/core/eviction/eviction_policy.h"

namespace epic::kv_store {

class LruPolicy final : public EvictionPolicy {
 public:
  explicit LruPolicy(EntryPool* pool) : pool_(pool) {}

  void Add(EntrySlot slot) override { queue_.Push(pool_, slot); }
  void Use(EntrySlot slot) override {
    queue_.Unlink(pool_, slot);
    queue_.Push(pool_, slot);
  }
  void Remove(EntrySlot slot) override { queue_.Unlink(pool_, slot); }
  void Evict(EntrySlot slot) override { queue_.Unlink(pool_, slot); }
  EntrySlot Next(const MayGo& may_go) override;

  std::unique_ptr<EvictionPolicy> CloneOnto(EntryPool* pool) const override;
  std::string_view QueueOf(EntrySlot) const override { return "lru"; }
  uint64_t bytes() const override { return queue_.bytes(); }
  uint64_t entries() const override { return queue_.entries(); }
  uint64_t memory_bytes() const override { return sizeof(*this); }

 private:
  EntryPool* const pool_;
  EntryQueue queue_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_LRU_POLICY_H_
