#include "services/kv_store/core/eviction/s3_fifo_policy.h"

#include <algorithm>

namespace epic::kv_store {
namespace {

constexpr uint8_t kSmall = 0;
constexpr uint8_t kMain = 1;
constexpr uint8_t kMostUses = 3;
constexpr uint8_t kUsesToMain = 1;
constexpr uint64_t kSmallShare = 10;  // a tenth

}  // namespace

EntryQueue* S3FifoPolicy::QueueAt(EntrySlot slot) {
  return (*pool_)[slot].queue == kSmall ? &small_ : &main_;
}

void S3FifoPolicy::Add(EntrySlot slot) {
  EvictionEntry& entry = (*pool_)[slot];
  entry.uses = 0;
  entry.queue = ghosts_.Take(entry.fingerprint) ? kMain : kSmall;
  QueueAt(slot)->Push(pool_, slot);
}

void S3FifoPolicy::Use(EntrySlot slot) {
  uint8_t& uses = (*pool_)[slot].uses;
  uses = std::min<uint8_t>(uses + 1, kMostUses);
}

void S3FifoPolicy::Remove(EntrySlot slot) { QueueAt(slot)->Unlink(pool_, slot); }

void S3FifoPolicy::Evict(EntrySlot slot) {
  const EvictionEntry& entry = (*pool_)[slot];
  Remove(slot);
  if (entry.queue == kSmall) ghosts_.Add(entry.fingerprint, entry.bytes);
  ghosts_.ShrinkTo(bytes());
}

void S3FifoPolicy::MoveToMain(EntrySlot slot) {
  EvictionEntry& entry = (*pool_)[slot];
  QueueAt(slot)->Unlink(pool_, slot);
  entry.queue = kMain;
  main_.Push(pool_, slot);
}

EntrySlot S3FifoPolicy::Next(const MayGo& may_go) {
  // Held entries that came to main's young end one after the other: as many as main has are all of it.
  uint64_t held = 0;
  while (entries() > 0) {
    const bool main_is_held = held >= main_.entries();
    const bool from_small = small_.entries() > 0 && (main_is_held || small_.bytes() * kSmallShare >= bytes());
    if (from_small) {
      const EntrySlot slot = small_.oldest();
      EvictionEntry& entry = (*pool_)[slot];
      const bool free = may_go(entry);
      if (free && entry.uses < kUsesToMain) return slot;
      held = main_is_held && !free ? held + 1 : 0;
      entry.uses = 0;
      MoveToMain(slot);
      continue;
    }
    if (main_is_held) return kNoEntry;
    const EntrySlot slot = main_.oldest();
    EvictionEntry& entry = (*pool_)[slot];
    if (entry.uses == 0 && may_go(entry)) return slot;
    held = entry.uses == 0 ? held + 1 : 0;
    if (entry.uses > 0) --entry.uses;
    MoveToMain(slot);
  }
  return kNoEntry;
}

std::unique_ptr<EvictionPolicy> S3FifoPolicy::CloneOnto(EntryPool* pool) const {
  auto clone = std::make_unique<S3FifoPolicy>(pool);
  clone->small_ = small_;
  clone->main_ = main_;
  clone->ghosts_ = ghosts_;
  return clone;
}

std::string_view S3FifoPolicy::QueueOf(EntrySlot slot) const {
  return (*pool_)[slot].queue == kSmall ? "small" : "main";
}

}  // namespace epic::kv_store
