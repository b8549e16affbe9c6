// Counts what a disk refuses, for StoreDisk; told by the decorators around tables and slabs. Thread-safe;
// never blocks.
#ifndef EPIC_SERVICES_KV_STORE_CORE_DISK_WATCH_H_
#define EPIC_SERVICES_KV_STORE_CORE_DISK_WATCH_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/storage/kv_store.h"

namespace epic::kv_store {

class DiskWatch {
 public:
  // Apart, because a small row may still fit where an object does not.
  enum class Space : uint8_t { kRows, kSlabs };

  // `clock` outlives the watch.
  explicit DiskWatch(const Clock* clock) : clock_(clock) {}
  DiskWatch(const DiskWatch&) = delete;
  DiskWatch& operator=(const DiskWatch&) = delete;

  StoreDisk Seen() const {
    StoreDisk seen;
    seen.errors = errors_.load();
    seen.last_error_steady_ns = last_error_ns_.load();
    seen.full = full_for_rows_.load() || full_for_slabs_.load();
    return seen;
  }
  void Note(const absl::Status& status) {
    if (status.ok()) return;
    last_error_ns_ = clock_->SteadyNs();  // before the count: who sees the count sees a time
    ++errors_;
  }
  // Of a write: `proves_room`: a success says that there is room again.
  void NoteWrite(const absl::Status& status, bool proves_room, Space space) {
    Note(status);
    std::atomic<bool>& full = space == Space::kRows ? full_for_rows_ : full_for_slabs_;
    if (status.code() == absl::StatusCode::kResourceExhausted) {
      full = true;
    } else if (status.ok() && proves_room) {
      full = false;
    }
  }

 private:
  const Clock* const clock_;
  std::atomic<uint64_t> errors_{0};
  std::atomic<int64_t> last_error_ns_{0};
  std::atomic<bool> full_for_rows_{false};
  std::atomic<bool> full_for_slabs_{false};
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_DISK_WATCH_H_
