// Counts what a disk refuses and sees when it is slow, for StoreDisk; told by the decorators around tables
// and slabs. Owned by the store. Thread-safe; locks are held for moments, never during a call of the disk.
//
// Slow. Of each call the time counts that it takes beyond what its bytes, and those on their way before it,
// may take. A call is late when that is 20 times what reads, or syncs, usually take, at least 10 ms, or
// 250 ms whatever is usual. Most calls late, of the last 8 or so: the disk is slow; few of them: it is not
// any more. One call that is late by a second, ended or not, is enough.
#ifndef EPIC_SERVICES_KV_STORE_CORE_DISK_WATCH_H_
#define EPIC_SERVICES_KV_STORE_CORE_DISK_WATCH_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/storage/kv_store.h"

namespace epic::kv_store {

class DiskWatch {
 public:
  // Apart, because a small row may still fit where an object does not.
  enum class Space : uint8_t { kRows, kSlabs };
  enum class Kind : uint8_t {
    kRead,        // of the disk itself
    kCachedRead,  // which may come from memory: says something only if it took a while
    kSync,
    kBuffered,  // a change that is not synced: says something only if it stood still, behind a sync
  };
  // Apart, because what is usual differs.
  enum class Side : uint8_t { kReading, kWriting };

  // `clock` outlives the watch.
  explicit DiskWatch(const Clock* clock) : clock_(clock) {}
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  // A call of the disk that is on its way as long as this lives.
  class Call {
   public:
    Call(DiskWatch* watch, Kind kind, uint64_t bytes)
        : watch_(watch), kind_(kind), bytes_(bytes), begin_ns_(watch->clock_->SteadyNs()) {
      due_ns_ = begin_ns_ + watch->Allowed(SideOf(kind), bytes);
      slot_ = watch->Begin(SideOf(kind), due_ns_);
    }
    ~Call() { watch_->End(*this); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class DiskWatch;
    DiskWatch* const watch_;
    const Kind kind_;
    const uint64_t bytes_;
    const int64_t begin_ns_;
    int64_t due_ns_ = 0;  // what it takes after this counts
    std::atomic<int64_t>* slot_ = nullptr;
  };

  StoreDisk Seen() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether it is slow now.
  bool IsSlow(Side side) const ABSL_LOCKS_EXCLUDED(mu_);

  void Note(const absl::Status& status);
  // Of a write: `proves_room`: a success says that there is room again.
  void NoteWrite(const absl::Status& status, bool proves_room, Space space);

 private:
  struct Speed {
    uint64_t quick_calls = 0;  // of which `usual_ns` is the average, over the last of them
    double usual_ns = 0;
    double late_share = 0;  // of the last calls
    double wait_ns = 0;     // on average, over the last calls
    int64_t last_end_ns = 0;
    bool slow = false;
  };
  static constexpr size_t kSides = 2;
  static constexpr size_t kSlots = 64;  // calls at a time, of one side, that are watched while they go on

  static constexpr Side SideOf(Kind kind) {
    return kind == Kind::kRead || kind == Kind::kCachedRead ? Side::kReading : Side::kWriting;
  }

  // How long a call may take that begins now.
  int64_t Allowed(Side side, uint64_t bytes);
  // nullptr: more calls at a time than are watched.
  std::atomic<int64_t>* Begin(Side side, int64_t due_ns);
  void End(const Call& call) ABSL_LOCKS_EXCLUDED(mu_);
  // How late the call on its way is that is latest; negative or 0: none is.
  int64_t Overdue(Side side, int64_t now_ns) const;

  const Clock* const clock_;
  std::array<std::array<std::atomic<int64_t>, kSlots>, kSides> due_ns_{};  // of calls on their way; 0: free
  std::array<std::atomic<uint64_t>, kSides> bytes_on_their_way_{};
  mutable Mutex mu_;
  std::array<Speed, kSides> speeds_ ABSL_GUARDED_BY(mu_);

  std::atomic<uint64_t> errors_{0};
  std::atomic<int64_t> last_error_ns_{0};
  std::atomic<bool> full_for_rows_{false};
  std::atomic<bool> full_for_slabs_{false};
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_DISK_WATCH_H_
