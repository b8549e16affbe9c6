// The memory of the host tier: one sealed memfd, mapped writable here and nowhere else, cut into regions.
//
// The file is sealed (FUTURE_WRITE, GROW, SHRINK, SEAL) after the one writable mapping was made: whoever gets
// its descriptor can map it for reading, but nobody can write to it, resize it or punch holes in it. Pages
// are taken from the system when regions first reach them and given back when the arena ends. A region lives
// until its ArenaRegion is destroyed; if a reader of another process holds it then (Hold), it is quarantined:
// not used again until the last hold is gone. Holds cover a bounded share of the arena; beyond it readers
// must copy. Thread-safe; lives until its last region and hold are gone, so that objects may outlive the
// store. Not here: which object is where (object_table.h), how descriptors get to other processes
// (common/storage/shm).
#ifndef EPIC_SERVICES_KV_STORE_CORE_ARENA_H_
#define EPIC_SERVICES_KV_STORE_CORE_ARENA_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/arena_allocator.h"

namespace epic::kv_store {

class ArenaRegion;

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  struct Options {
    uint64_t capacity_bytes = uint64_t{1}
                              << 30;  // rounded down to a multiple of 4096, to one of them at least
    uint32_t held_percent_max = 50;   // of the capacity: regions that readers hold
  };
  // Errors: Unavailable when the system has no such memory, or cannot seal it.
  static absl::StatusOr<std::shared_ptr<Arena>> Create(const Options& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Memory for `pieces` of `piece_bytes`; what it holds is unspecified. nullptr when there is no room for it
  // now, or the system has no memory for it. REQUIRES: both are positive.
  std::unique_ptr<ArenaRegion> Allocate(uint64_t piece_bytes, uint64_t pieces = 1);

  // Of the same file, opened for reading only; valid as long as the arena.
  int read_only_fd() const { return read_only_fd_; }
  // All of it, as this process has it mapped.
  ByteSpan memory() const { return memory_; }
  uint64_t capacity_bytes() const { return capacity_bytes_; }

  struct Numbers {
    uint64_t used_bytes = 0;  // of regions, quarantined ones included
    uint64_t free_bytes = 0;
    uint64_t largest_hole_bytes = 0;
    uint64_t holes = 0;
    uint64_t regions = 0;            // not yet destroyed
    uint64_t resident_bytes = 0;     // taken from the system
    uint64_t held_bytes = 0;         // of regions that readers hold
    uint64_t held_bytes_max = 0;     // beyond it readers must copy
    uint64_t quarantined_bytes = 0;  // of these, those whose ArenaRegion is gone
    uint64_t quarantined_regions = 0;
    uint64_t holds_refused = 0;  // since the start
  };
  Numbers numbers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class ArenaRegion;
  class Hold;
  using Extents = std::vector<ArenaAllocator::Extent>;
  // Of one region; outlives it where somebody holds it.
  struct State {
    uint64_t generation = 0;
    uint64_t piece_bytes = 0;
    uint64_t footprint_bytes = 0;
    Extents extents;
    std::atomic<uint64_t> holds{0};  // changed under mu_
    bool quarantined = false;        // under mu_: the region is gone, its holds are not
  };

  Arena(const Options& options, MutableByteSpan memory, int read_only_fd);
  // Has the system give the pages of the extents; false when it has none left.
  bool MakeResident(const Extents& extents) ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<uint64_t> AbsentChunks(const Extents& extents) const ABSL_LOCKS_EXCLUDED(mu_);
  MutableByteSpan Chunk(uint64_t chunk) const;
  void ReleaseRegion(State* state) ABSL_LOCKS_EXCLUDED(mu_);
  bool AddHold(State* state) ABSL_LOCKS_EXCLUDED(mu_);
  void DropHold(State* state) ABSL_LOCKS_EXCLUDED(mu_);
  void Free(const Extents& extents) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t capacity_bytes_;
  const uint64_t held_bytes_max_;
  const MutableByteSpan memory_;
  const int read_only_fd_;

  mutable Mutex mu_;
  ArenaAllocator allocator_ ABSL_GUARDED_BY(mu_);
  std::vector<bool> resident_ ABSL_GUARDED_BY(mu_);  // by chunk of 2 MiB
  uint64_t next_generation_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t regions_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t resident_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t held_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t quarantined_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t quarantined_regions_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t holds_refused_ ABSL_GUARDED_BY(mu_) = 0;
};

// Owns memory of an arena. Its pieces lie one behind the other in each extent. Thread-safe as memory is.
class ArenaRegion {
 public:
  ~ArenaRegion();
  ArenaRegion(const ArenaRegion&) = delete;
  ArenaRegion& operator=(const ArenaRegion&) = delete;

  // REQUIRES: index < the number of pieces.
  MutableByteSpan piece(uint64_t index) {
    return arena_->memory_.subspan(piece_offset(index), state_->piece_bytes);
  }
  ByteSpan piece(uint64_t index) const {
    return arena_->memory_.subspan(piece_offset(index), state_->piece_bytes);
  }
  // Where a piece begins in the arena's file.
  uint64_t piece_offset(uint64_t index) const;
  // At most ArenaAllocator::kMaxExtents, in the order of the pieces.
  std::span<const ArenaAllocator::Extent> extents() const { return state_->extents; }
  MutableByteSpan extent(size_t index) {
    return arena_->memory_.subspan(state_->extents[index].offset, state_->extents[index].bytes);
  }
  uint64_t footprint_bytes() const { return state_->footprint_bytes; }
  // Of this region alone, in the life of the arena.
  uint64_t generation() const { return state_->generation; }

  // Keeps the memory from being used again until the result is destroyed, on any thread, also after the
  // region. nullptr when the share of the arena for that is used up. A region counts once, however many hold
  // it.
  std::shared_ptr<const void> TryHold() const;
  // Takes no lock.
  bool IsHeld() const { return state_->holds.load(std::memory_order_acquire) > 0; }

 private:
  friend class Arena;
  ArenaRegion(std::shared_ptr<Arena> arena, std::shared_ptr<Arena::State> state)
      : arena_(std::move(arena)), state_(std::move(state)) {}

  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<Arena::State> state_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_ARENA_H_
