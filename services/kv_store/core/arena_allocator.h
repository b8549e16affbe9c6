// Which bytes of an arena are free: pure bookkeeping over offsets, no memory in it. Owned by the Arena
// (arena.h), which guards it: one thread at a time.
//
// A region is asked for as equal pieces (the layers of an object). It is one extent where a hole is large
// enough: the smallest such hole, the lowest among equals, its low end. Else it is several extents of whole
// pieces, as few as can be, so that a fragmented arena is still used to its end. A freed extent joins the
// holes on both sides. Extents are multiples of 4096 bytes; each costs O(log holes). Not here: who may free,
// quarantine.
#ifndef EPIC_SERVICES_KV_STORE_CORE_ARENA_ALLOCATOR_H_
#define EPIC_SERVICES_KV_STORE_CORE_ARENA_ALLOCATOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"

namespace epic::kv_store {

class ArenaAllocator {
 public:
  static constexpr uint64_t kGranuleBytes = 4096;
  // Of one region. Where evictions leave gaps, 1 extent keeps 78..88 % of the arena in use, 4 keep
  // 93..96 %, and no bound 88 % (arena_allocator_test).
  static constexpr size_t kMaxExtents = 4;
  // What an extent for `bytes` takes. REQUIRES: bytes <= 2^63.
  static uint64_t Footprint(uint64_t bytes) {
    return (bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  }

  struct Extent {
    uint64_t offset = 0;  // a multiple of 4096
    uint64_t bytes = 0;   // the same
    uint64_t pieces = 0;  // they lie one behind the other from `offset`
    bool operator==(const Extent&) const = default;
  };

  // Capacity is rounded down to a multiple of 4096.
  explicit ArenaAllocator(uint64_t capacity_bytes);

  // Extents for `pieces` of `piece_bytes` each, in the order of the pieces, the fewest that can be; empty
  // when they do not fit. REQUIRES: both are positive.
  std::vector<Extent> Allocate(uint64_t piece_bytes, uint64_t pieces = 1);
  // Gives the extents of one region back. REQUIRES: Allocate returned them, and they were not freed since.
  void Free(std::span<const Extent> extents);

  struct Numbers {
    uint64_t capacity_bytes = 0;
    uint64_t free_bytes = 0;
    uint64_t largest_hole_bytes = 0;  // the largest extent; equal to free_bytes: not fragmented
    uint64_t holes = 0;
    uint64_t extents = 0;
  };
  Numbers numbers() const;

 private:
  Extent Take(uint64_t hole_bytes, uint64_t offset, uint64_t piece_bytes, uint64_t pieces);
  void FreeExtent(uint64_t offset, uint64_t bytes);
  void AddHole(uint64_t offset, uint64_t bytes);
  void RemoveHole(uint64_t offset, uint64_t bytes);

  const uint64_t capacity_bytes_;
  uint64_t free_bytes_ = 0;
  uint64_t extents_ = 0;
  absl::btree_map<uint64_t, uint64_t> holes_;                     // offset -> bytes
  absl::btree_set<std::pair<uint64_t, uint64_t>> holes_by_size_;  // {bytes, offset}
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_ARENA_ALLOCATOR_H_
