// Keys that were evicted lately, by fingerprint, oldest forgotten first; bounded by the bytes that their
// objects had. No locks. For policies only.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_GHOST_LIST_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_GHOST_LIST_H_

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_map.h"

namespace epic::kv_store {

class GhostList {
 public:
  // A key that is known already becomes the youngest.
  void Add(uint64_t fingerprint, uint64_t bytes);
  // Whether the key was known; it no longer is.
  bool Take(uint64_t fingerprint);
  void ShrinkTo(uint64_t max_bytes);

  uint64_t bytes() const { return bytes_; }
  uint64_t entries() const { return known_.size(); }
  uint64_t memory_bytes() const;

 private:
  struct Ghost {
    uint64_t fingerprint = 0;
    uint64_t bytes = 0;
    uint64_t number = 0;
  };
  struct Known {
    uint64_t number = 0;  // of the ghost that counts; others of the same key in the queue are void
    uint64_t bytes = 0;
  };
  void DropVoid();

  std::deque<Ghost> queue_;
  absl::flat_hash_map<uint64_t, Known> known_;
  uint64_t bytes_ = 0;
  uint64_t next_number_ = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_GHOST_LIST_H_
