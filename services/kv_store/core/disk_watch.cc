#include "services/kv_store/core/disk_watch.h"

#include <algorithm>

namespace epic::kv_store {
namespace {

constexpr int64_t kNsPerByte = 8;          // some 120 MiB/s: a disk with heads, or a busy one
constexpr int64_t kFromMemoryNs = 50'000;  // reads this quick asked no disk
constexpr uint64_t kCallsToLearn = 32;     // before anything is usual
constexpr double kUsualOver = 1024;        // calls
constexpr double kLatelyOver = 8;          // calls
constexpr double kTimesUsual = 20;         // is late
constexpr double kLateMinNs = 10e6;        // but not less than this
constexpr double kLateMaxNs = 250e6;       // and this is, always
constexpr double kSlowFrom = 0.5;          // share of late calls
constexpr double kSlowUntil = 0.2;         // the same, once it is slow
constexpr int64_t kStandsStillNs = 1'000'000'000;
constexpr int64_t kForgetNs = 60'000'000'000;  // what was seen of a disk that nobody asks any more

}  // namespace

int64_t DiskWatch::Allowed(Side side, uint64_t bytes) {
  const uint64_t before = bytes_on_their_way_[static_cast<size_t>(side)].fetch_add(bytes);
  return static_cast<int64_t>(before + bytes) * kNsPerByte;
}

std::atomic<int64_t>* DiskWatch::Begin(Side side, int64_t due_ns) {
  for (std::atomic<int64_t>& slot : due_ns_[static_cast<size_t>(side)]) {
    int64_t free = 0;
    if (slot.load(std::memory_order_relaxed) == 0 && slot.compare_exchange_strong(free, due_ns)) return &slot;
  }
  return nullptr;
}

void DiskWatch::End(const Call& call) {
  const int64_t now_ns = clock_->SteadyNs();
  const auto side = static_cast<size_t>(SideOf(call.kind_));
  bytes_on_their_way_[side] -= call.bytes_;
  if (call.slot_ != nullptr) call.slot_->store(0);
  const auto wait_ns = static_cast<double>(std::max<int64_t>(0, now_ns - call.due_ns_));
  const bool stood_still = wait_ns > kStandsStillNs;
  if (call.kind_ == Kind::kBuffered && !stood_still) return;
  if (call.kind_ == Kind::kCachedRead && now_ns - call.begin_ns_ < kFromMemoryNs) return;
  const MutexLock lock(&mu_);
  Speed& speed = speeds_[side];
  const double limit_ns = speed.quick_calls < kCallsToLearn
                              ? kLateMaxNs
                              : std::clamp(kTimesUsual * speed.usual_ns, kLateMinNs, kLateMaxNs);
  const bool late = wait_ns > limit_ns;
  speed.late_share += ((late ? 1 : 0) - speed.late_share) / kLatelyOver;
  if (stood_still) speed.late_share = 1;
  speed.wait_ns += (wait_ns - speed.wait_ns) / kLatelyOver;
  speed.last_end_ns = now_ns;
  speed.slow = speed.late_share > (speed.slow ? kSlowUntil : kSlowFrom);
  // A disk that is slow is not what it usually is, however long that lasts.
  if (late || speed.slow) return;
  ++speed.quick_calls;
  speed.usual_ns += (wait_ns - speed.usual_ns) / std::min(static_cast<double>(speed.quick_calls), kUsualOver);
}

int64_t DiskWatch::Overdue(Side side, int64_t now_ns) const {
  int64_t overdue_ns = 0;
  for (const std::atomic<int64_t>& slot : due_ns_[static_cast<size_t>(side)]) {
    if (const int64_t due_ns = slot.load(std::memory_order_relaxed); due_ns != 0) {
      overdue_ns = std::max(overdue_ns, now_ns - due_ns);
    }
  }
  return overdue_ns;
}

bool DiskWatch::IsSlow(Side side) const {
  const int64_t now_ns = clock_->SteadyNs();
  if (Overdue(side, now_ns) > kStandsStillNs) return true;
  const MutexLock lock(&mu_);
  const Speed& speed = speeds_[static_cast<size_t>(side)];
  return speed.slow && now_ns - speed.last_end_ns < kForgetNs;
}

StoreDisk DiskWatch::Seen() const {
  StoreDisk seen;
  seen.errors = errors_.load();
  seen.last_error_steady_ns = last_error_ns_.load();
  seen.full = full_for_rows_.load() || full_for_slabs_.load();
  const int64_t now_ns = clock_->SteadyNs();
  for (const Side side : {Side::kReading, Side::kWriting}) {
    seen.slow = seen.slow || IsSlow(side);
    seen.wait_ns = std::max(seen.wait_ns, Overdue(side, now_ns));
  }
  const MutexLock lock(&mu_);
  for (const Speed& speed : speeds_) {
    if (now_ns - speed.last_end_ns >= kForgetNs) continue;
    seen.wait_ns = std::max(seen.wait_ns, static_cast<int64_t>(speed.wait_ns));
  }
  return seen;
}

void DiskWatch::Note(const absl::Status& status) {
  if (status.ok()) return;
  last_error_ns_ = clock_->SteadyNs();  // before the count: who sees the count sees a time
  ++errors_;
}

void DiskWatch::NoteWrite(const absl::Status& status, bool proves_room, Space space) {
  Note(status);
  std::atomic<bool>& full = space == Space::kRows ? full_for_rows_ : full_for_slabs_;
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    full = true;
  } else if (status.ok() && proves_room) {
    full = false;
  }
}

}  // namespace epic::kv_store
