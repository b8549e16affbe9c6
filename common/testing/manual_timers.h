// Timers that fire when a test moves its ManualClock. Thread-safe; callbacks run on the thread that advances.
#ifndef EPIC_COMMON_TESTING_MANUAL_TIMERS_H_
#define EPIC_COMMON_TESTING_MANUAL_TIMERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"

namespace epic::testing {

class ManualTimers final : public Timers {
 public:
  explicit ManualTimers(ManualClock* clock) : clock_(clock) {}

  TimerId At(int64_t steady_ns, std::function<void()> callback) override {
    MutexLock lock(&mu_);
    const TimerId id = next_id_++;
    due_.emplace(std::pair(steady_ns, id), std::move(callback));
    return id;
  }
  void Cancel(TimerId id) override {
    MutexLock lock(&mu_);
    for (auto it = due_.begin(); it != due_.end(); ++it) {
      if (it->first.second != id) continue;
      due_.erase(it);
      return;
    }
  }
  size_t pending() const {
    MutexLock lock(&mu_);
    return due_.size();
  }
  // Moves the clock to each due time in turn and fires; the clock ends `ms` later than it was.
  void AdvanceMs(int64_t ms) {
    const int64_t end_ns = clock_->SteadyNs() + ms * 1'000'000;
    while (true) {
      std::function<void()> callback;
      {
        MutexLock lock(&mu_);
        if (due_.empty() || due_.begin()->first.first > end_ns) break;
        const int64_t left_ns = due_.begin()->first.first - clock_->SteadyNs();
        if (left_ns > 0) clock_->AdvanceMs((left_ns + 999'999) / 1'000'000);
        callback = std::move(due_.begin()->second);
        due_.erase(due_.begin());
      }
      callback();
    }
    if (end_ns > clock_->SteadyNs()) clock_->AdvanceMs((end_ns - clock_->SteadyNs()) / 1'000'000);
  }

 private:
  ManualClock* const clock_;
  mutable Mutex mu_;
  std::map<std::pair<int64_t, TimerId>, std::function<void()>> due_ ABSL_GUARDED_BY(mu_);
  TimerId next_id_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_TESTING_MANUAL_TIMERS_H_
