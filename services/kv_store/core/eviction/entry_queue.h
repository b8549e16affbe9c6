// A first-in first-out queue of entries, linked through their pool: every operation takes constant time and
// no memory. The pool is an argument, so that a queue can be copied together with it. For policies only.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_ENTRY_QUEUE_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_ENTRY_QUEUE_H_

#include <cstdint>

#include "services/kv_store/core/eviction/eviction_policy.h"

namespace epic::kv_store {

class EntryQueue {
 public:
  void Push(EntryPool* pool, EntrySlot slot) {
    EvictionEntry& entry = (*pool)[slot];
    entry.older = youngest_;
    entry.younger = kNoEntry;
    if (youngest_ == kNoEntry) {
      oldest_ = slot;
    } else {
      (*pool)[youngest_].younger = slot;
    }
    youngest_ = slot;
    bytes_ += entry.bytes;
    ++entries_;
  }
  // REQUIRES: the entry is in this queue.
  void Unlink(EntryPool* pool, EntrySlot slot) {
    EvictionEntry& entry = (*pool)[slot];
    (entry.older == kNoEntry ? oldest_ : (*pool)[entry.older].younger) = entry.younger;
    (entry.younger == kNoEntry ? youngest_ : (*pool)[entry.younger].older) = entry.older;
    entry.older = entry.younger = kNoEntry;
    bytes_ -= entry.bytes;
    --entries_;
  }
  EntrySlot oldest() const { return oldest_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t entries() const { return entries_; }

 private:
  EntrySlot oldest_ = kNoEntry;
  EntrySlot youngest_ = kNoEntry;
  uint64_t bytes_ = 0;
  uint64_t entries_ = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_ENTRY_QUEUE_H_
