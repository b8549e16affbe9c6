// Who leaves a tier next, and why: pins, deadlines, tenant quotas and last uses over one EvictionPolicy each.
// Pure logic: it knows sizes, not bytes; its owner (object_table.h) moves the bytes. One thread at a time.
//
// Entries of one pin and one tenant with a quota stand in a policy of their own; those of all tenants without
// one share theirs. The order:
//   1. tenants over their quota, most bytes over first; of such a tenant unpinned, then soft-, then
//   hard-pinned
//   2. unpinned entries of all, then soft-pinned, then hard-pinned ones; where several policies have one, the
//      one whose last use is longest ago
// What may not go at all (leased, being written, hard-pinned without another copy) is what `may_go` refuses.
// A pin past its deadline is none: the entry then stands among the unpinned ones as if it had just come.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_TIER_EVICTION_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_TIER_EVICTION_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "common/base/clock.h"
#include "common/storage/context_record.h"
#include "services/kv_store/core/eviction/eviction_policy.h"

namespace epic::kv_store {

struct PinState {
  Pin pin = Pin::kNone;
  std::optional<int64_t> until_ms;  // Unix time; nullopt: for ever
};

// When more than `high` of a tier would be taken, entries go until no more than `low` is: in batches, so that
// not every new object waits for others to go.
struct Watermarks {
  double high = 1.0;
  double low = 0.97;
};
// How many of the `used_bytes` to evict before `incoming_bytes` come; 0: none.
// REQUIRES: 0 < low <= high <= 1.
uint64_t BytesToEvict(const Watermarks& marks, uint64_t used_bytes, uint64_t incoming_bytes,
                      uint64_t capacity_bytes);

// How an entry stands in its tier: enough to say why it goes, or what it would take until it does.
struct EvictionStanding {
  EntrySlot slot = kNoEntry;
  uint64_t owner = 0;
  uint64_t bytes = 0;
  uint32_t tenant = 0;
  Pin pin = Pin::kNone;
  std::string_view queue;  // "lru", "small" or "main"
  uint32_t uses = 0;       // that still count for it there
  int64_t idle_ms = 0;     // since its last use
  uint64_t tenant_bytes = 0;
  uint64_t tenant_quota_bytes = 0;  // 0: none
  bool over_quota() const { return tenant_quota_bytes != 0 && tenant_bytes > tenant_quota_bytes; }
};

class TierEviction {
 public:
  // `clock` outlives it.
  TierEviction(EvictionKind kind, const Clock* clock);
  TierEviction(const TierEviction& other);
  TierEviction& operator=(const TierEviction&) = delete;

  // REQUIRES: the tenant has no quota and no entry yet; bytes > 0. Tenants are small numbers of the caller's.
  void SetQuota(uint32_t tenant, uint64_t bytes);

  // REQUIRES: bytes > 0.
  EntrySlot Add(uint64_t owner, uint64_t fingerprint, uint64_t bytes, uint32_t tenant, const PinState& pin);
  void Use(EntrySlot slot) { Use(slot, NowMs()); }
  // As of a time of the clock's SteadyNs that may lie a little back.
  void Use(EntrySlot slot, int64_t at_ms);
  // That slot is used soon.
  void Prefetch(EntrySlot slot) const { __builtin_prefetch(&pool_[slot], /*rw=*/1); }
  void SetPin(EntrySlot slot, const PinState& pin);
  // Evict: as Next said. Remove: for any other reason; the key is not remembered.
  void Evict(EntrySlot slot);
  void Remove(EntrySlot slot);

  // The next to go; kNoEntry when none may. Takes nothing out.
  EntrySlot Next(const MayGo& may_go);
  // The next of a tenant that is over its quota; kNoEntry also when there is none such.
  EntrySlot NextOverQuota(const MayGo& may_go);
  EvictionStanding Explain(EntrySlot slot) const;
  PinState PinOf(EntrySlot slot) const;
  uint64_t BytesOf(EntrySlot slot) const { return pool_[slot].bytes; }
  // What would go, in order, until `bytes` are gone; changes nothing. Copies the tier: for people, not for
  // every request.
  std::vector<EvictionStanding> Preview(uint64_t bytes, const MayGo& may_go) const;

  void ForEach(const std::function<void(const EvictionEntry&)>& visit) const {
    for (EntrySlot slot = 0; slot < pool_.end(); ++slot) {
      if (pool_[slot].bytes > 0) visit(pool_[slot]);
    }
  }
  uint64_t bytes() const { return bytes_; }
  uint64_t entries() const { return pool_.size(); }
  uint64_t TenantBytes(uint32_t tenant) const;
  // All that it takes: entries, ghosts, deadlines.
  uint64_t memory_bytes() const;

 private:
  static constexpr size_t kPins = 3;
  struct Partition {
    uint64_t quota_bytes = 0;
    uint64_t bytes = 0;
    std::array<std::unique_ptr<EvictionPolicy>, kPins> policies;  // by pin
    uint64_t excess() const { return quota_bytes != 0 && bytes > quota_bytes ? bytes - quota_bytes : 0; }
  };
  struct Tenant {
    uint32_t partition = 0;
    uint64_t bytes = 0;
  };

  struct DeadlineLess {
    const EntryPool* pool;
    bool operator()(EntrySlot a, EntrySlot b) const {
      return std::pair((*pool)[a].pin_until_ms, a) < std::pair((*pool)[b].pin_until_ms, b);
    }
  };

  Partition MakePartition(uint64_t quota_bytes);
  Tenant& TenantAt(uint32_t tenant);
  Partition& PartitionOf(EntrySlot slot);
  EvictionPolicy* PolicyOf(EntrySlot slot);
  void Move(EntrySlot slot, Pin pin);
  void ForgetDeadline(EntrySlot slot);
  void LapsePins();
  void Drop(EntrySlot slot);
  int64_t NowMs() const { return clock_->SteadyNs() / 1'000'000; }

  const EvictionKind kind_;
  const Clock* const clock_;
  EntryPool pool_;
  std::vector<Partition> partitions_;                   // the first is that of tenants without a quota
  std::vector<Tenant> tenants_;                         // by number
  absl::btree_set<EntrySlot, DeadlineLess> deadlines_;  // of pins that end
  uint64_t bytes_ = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_TIER_EVICTION_H_
