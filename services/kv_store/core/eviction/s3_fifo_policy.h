// S3-FIFO ("simple, scalable, three FIFO queues", Yang et al., SOSP 2023), by bytes. What is new stands in a
// small queue; what is used there moves to the main one; what is not goes soon, so that a scan passes through
// without pushing out what is used. See eviction_policy.h for the contract.
//
//   Add     of a key that a ghost remembers: young end of main, else young end of small; uses = 0
//   Use     uses = min(uses + 1, 3); nothing moves
//   Next    small, while it has at least a tenth of the bytes or main is empty; else main.
//           Small's oldest with at least 1 use, or held: to main, uses = 0. Main's oldest with uses: to the
//           young end, one use less; held: to the young end. Any other goes. When all of main is held: small.
//   Evict   from small: the key becomes a ghost. Ghosts are forgotten, oldest first, beyond as many bytes as
//           the entries have.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_S3_FIFO_POLICY_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_S3_FIFO_POLICY_H_

#include <cstdint>
#include <memory>

#include "services/kv_store/core/eviction/entry_queue.h"
#include "services/kv_store/core/eviction/eviction_policy.h"
#include "services/kv_store/core/eviction/ghost_list.h"

namespace epic::kv_store {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(EntryPool* pool) : pool_(pool) {}

  void Add(EntrySlot slot) override;
  void Use(EntrySlot slot) override;
  void Remove(EntrySlot slot) override;
  void Evict(EntrySlot slot) override;
  EntrySlot Next(const MayGo& may_go) override;

  std::unique_ptr<EvictionPolicy> CloneOnto(EntryPool* pool) const override;
  std::string_view QueueOf(EntrySlot slot) const override;
  uint64_t bytes() const override { return small_.bytes() + main_.bytes(); }
  uint64_t entries() const override { return small_.entries() + main_.entries(); }
  uint64_t memory_bytes() const override { return sizeof(*this) + ghosts_.memory_bytes(); }

 private:
  EntryQueue* QueueAt(EntrySlot slot);
  void MoveToMain(EntrySlot slot);

  EntryPool* const pool_;
  EntryQueue small_;
  EntryQueue main_;
  GhostList ghosts_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_S3_FIFO_POLICY_H_
