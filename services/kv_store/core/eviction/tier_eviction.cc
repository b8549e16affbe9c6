#include "services/kv_store/core/eviction/tier_eviction.h"

#include <algorithm>

#include "common/base/check.h"

namespace epic::kv_store {

uint64_t BytesToEvict(const Watermarks& marks, uint64_t used_bytes, uint64_t incoming_bytes,
                      uint64_t capacity_bytes) {
  const auto capacity = static_cast<double>(capacity_bytes);
  const uint64_t wanted = used_bytes + incoming_bytes;
  if (wanted <= static_cast<uint64_t>(marks.high * capacity)) return 0;
  return std::min(used_bytes, wanted - std::min(wanted, static_cast<uint64_t>(marks.low * capacity)));
}

TierEviction::TierEviction(EvictionKind kind, const Clock* clock)
    : kind_(kind), clock_(clock), deadlines_(DeadlineLess{&pool_}) {
  partitions_.push_back(MakePartition(0));
}

TierEviction::TierEviction(const TierEviction& other)
    : kind_(other.kind_),
      clock_(other.clock_),
      pool_(other.pool_),
      tenants_(other.tenants_),
      deadlines_(other.deadlines_.begin(), other.deadlines_.end(), DeadlineLess{&pool_}),
      bytes_(other.bytes_) {
  for (const Partition& partition : other.partitions_) {
    Partition copy{.quota_bytes = partition.quota_bytes, .bytes = partition.bytes, .policies = {}};
    for (size_t pin = 0; pin < kPins; ++pin) copy.policies[pin] = partition.policies[pin]->CloneOnto(&pool_);
    partitions_.push_back(std::move(copy));
  }
}

TierEviction::Partition TierEviction::MakePartition(uint64_t quota_bytes) {
  Partition partition{.quota_bytes = quota_bytes, .bytes = 0, .policies = {}};
  for (auto& policy : partition.policies) policy = MakeEvictionPolicy(kind_, &pool_);
  return partition;
}

TierEviction::Tenant& TierEviction::TenantAt(uint32_t tenant) {
  if (tenant >= tenants_.size()) tenants_.resize(tenant + 1);
  return tenants_[tenant];
}

void TierEviction::SetQuota(uint32_t tenant, uint64_t bytes) {
  EPIC_CHECK(bytes > 0 && TenantAt(tenant).partition == 0 && TenantAt(tenant).bytes == 0);
  TenantAt(tenant).partition = static_cast<uint32_t>(partitions_.size());
  partitions_.push_back(MakePartition(bytes));
}

uint64_t TierEviction::TenantBytes(uint32_t tenant) const {
  return tenant < tenants_.size() ? tenants_[tenant].bytes : 0;
}

TierEviction::Partition& TierEviction::PartitionOf(EntrySlot slot) {
  return partitions_[tenants_[pool_[slot].tenant].partition];
}

EvictionPolicy* TierEviction::PolicyOf(EntrySlot slot) {
  return PartitionOf(slot).policies[static_cast<size_t>(pool_[slot].pin)].get();
}

EntrySlot TierEviction::Add(uint64_t owner, uint64_t fingerprint, uint64_t bytes, uint32_t tenant,
                            const PinState& pin) {
  TenantAt(tenant).bytes += bytes;
  bytes_ += bytes;
  const EntrySlot slot = pool_.Add(
      {.owner = owner, .fingerprint = fingerprint, .bytes = bytes, .used_at_ms = NowMs(), .tenant = tenant});
  PartitionOf(slot).bytes += bytes;
  PolicyOf(slot)->Add(slot);
  if (pin.pin != Pin::kNone) SetPin(slot, pin);
  return slot;
}

void TierEviction::Use(EntrySlot slot, int64_t at_ms) {
  pool_[slot].used_at_ms = std::max(pool_[slot].used_at_ms, at_ms);
  PolicyOf(slot)->Use(slot);
}

void TierEviction::Move(EntrySlot slot, Pin pin) {
  if (pool_[slot].pin == pin) return;
  PolicyOf(slot)->Remove(slot);
  pool_[slot].pin = pin;
  PolicyOf(slot)->Add(slot);
}

void TierEviction::ForgetDeadline(EntrySlot slot) {
  if (pool_[slot].pin_until_ms == EvictionEntry::kForEver) return;
  deadlines_.erase(slot);
  pool_[slot].pin_until_ms = EvictionEntry::kForEver;
}

void TierEviction::SetPin(EntrySlot slot, const PinState& pin) {
  ForgetDeadline(slot);
  if (pin.pin != Pin::kNone && pin.until_ms.value_or(EvictionEntry::kForEver) != EvictionEntry::kForEver) {
    pool_[slot].pin_until_ms = *pin.until_ms;
    deadlines_.insert(slot);
  }
  Move(slot, pin.pin);
}

PinState TierEviction::PinOf(EntrySlot slot) const {
  const EvictionEntry& entry = pool_[slot];
  PinState pin{.pin = entry.pin, .until_ms = {}};
  if (entry.pin_until_ms != EvictionEntry::kForEver) pin.until_ms = entry.pin_until_ms;
  return pin;
}

void TierEviction::LapsePins() {
  if (deadlines_.empty()) return;
  const int64_t now_ms = clock_->UnixMs();
  while (!deadlines_.empty() && pool_[*deadlines_.begin()].pin_until_ms <= now_ms) {
    const EntrySlot slot = *deadlines_.begin();
    ForgetDeadline(slot);
    Move(slot, Pin::kNone);
  }
}

void TierEviction::Drop(EntrySlot slot) {
  const EvictionEntry& entry = pool_[slot];
  ForgetDeadline(slot);
  PartitionOf(slot).bytes -= entry.bytes;
  TenantAt(entry.tenant).bytes -= entry.bytes;
  bytes_ -= entry.bytes;
  pool_.Erase(slot);
}

void TierEviction::Evict(EntrySlot slot) {
  PolicyOf(slot)->Evict(slot);
  Drop(slot);
}

void TierEviction::Remove(EntrySlot slot) {
  PolicyOf(slot)->Remove(slot);
  Drop(slot);
}

EntrySlot TierEviction::NextOverQuota(const MayGo& may_go) {
  LapsePins();
  std::vector<Partition*> over;
  for (Partition& partition : partitions_) {
    if (partition.excess() > 0) over.push_back(&partition);
  }
  std::stable_sort(over.begin(), over.end(),
                   [](const Partition* a, const Partition* b) { return a->excess() > b->excess(); });
  for (const Partition* partition : over) {
    for (const auto& policy : partition->policies) {
      if (const EntrySlot slot = policy->Next(may_go); slot != kNoEntry) return slot;
    }
  }
  return kNoEntry;
}

EntrySlot TierEviction::Next(const MayGo& may_go) {
  if (const EntrySlot slot = NextOverQuota(may_go); slot != kNoEntry) return slot;
  for (size_t pin = 0; pin < kPins; ++pin) {
    EntrySlot next = kNoEntry;
    for (const Partition& partition : partitions_) {
      const EntrySlot slot = partition.policies[pin]->Next(may_go);
      if (slot == kNoEntry) continue;
      if (next == kNoEntry || pool_[slot].used_at_ms < pool_[next].used_at_ms) next = slot;
    }
    if (next != kNoEntry) return next;
  }
  return kNoEntry;
}

EvictionStanding TierEviction::Explain(EntrySlot slot) const {
  const EvictionEntry& entry = pool_[slot];
  const Tenant& tenant = tenants_[entry.tenant];
  const Partition& partition = partitions_[tenant.partition];
  return {.slot = slot,
          .owner = entry.owner,
          .bytes = entry.bytes,
          .tenant = entry.tenant,
          .pin = entry.pin,
          .queue = partition.policies[static_cast<size_t>(entry.pin)]->QueueOf(slot),
          .uses = entry.uses,
          .idle_ms = NowMs() - entry.used_at_ms,
          .tenant_bytes = tenant.bytes,
          .tenant_quota_bytes = partition.quota_bytes};
}

std::vector<EvictionStanding> TierEviction::Preview(uint64_t bytes, const MayGo& may_go) const {
  TierEviction copy(*this);
  std::vector<EvictionStanding> gone;
  for (uint64_t freed = 0; freed < bytes;) {
    const EntrySlot slot = copy.Next(may_go);
    if (slot == kNoEntry) break;
    gone.push_back(copy.Explain(slot));
    freed += gone.back().bytes;
    copy.Evict(slot);
  }
  return gone;
}

uint64_t TierEviction::memory_bytes() const {
  uint64_t bytes = sizeof(*this) + pool_.memory_bytes() + partitions_.capacity() * sizeof(Partition) +
                   tenants_.capacity() * sizeof(Tenant) + deadlines_.size() * 2 * sizeof(EntrySlot);
  for (const Partition& partition : partitions_) {
    for (const auto& policy : partition.policies) bytes += policy->memory_bytes();
  }
  return bytes;
}

}  // namespace epic::kv_store
