// A loop that runs when a test says so, on the test's thread, with time moved by hand. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_UCX_TESTING_MANUAL_LOOP_H_
#define EPIC_COMMON_TRANSPORT_UCX_TESTING_MANUAL_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/testing/manual_timers.h"
#include "common/transport/ucx/loop.h"

namespace epic::transport {

class ManualLoop final : public Loop {
 public:
  explicit ManualLoop(ManualClock* clock) : timers_(clock) {}

  bool TryPost(std::function<void()> task) override { return Post(std::move(task)); }
  bool Post(std::function<void()> task) override {
    MutexLock lock(&mu_);
    if (stopped_) return false;
    tasks_.push_back(std::move(task));
    return true;
  }
  TimerId At(int64_t steady_ns, std::function<void()> callback) override {
    return timers_.At(steady_ns, std::move(callback));
  }
  void Cancel(TimerId id) override { timers_.Cancel(id); }

  // Runs tasks, also those that tasks post, until there is none.
  void Run() {
    while (true) {
      std::function<void()> task;
      {
        MutexLock lock(&mu_);
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  // In steps of 10 ms, so that what timers post runs in time.
  void Advance(int64_t ms) {
    for (Run(); ms > 0; ms -= 10) {
      timers_.AdvanceMs(ms < 10 ? ms : 10);
      Run();
    }
  }
  size_t timers() const { return timers_.pending(); }
  void Stop() {
    MutexLock lock(&mu_);
    stopped_ = true;
    tasks_.clear();
  }

 private:
  testing::ManualTimers timers_;
  Mutex mu_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_TESTING_MANUAL_LOOP_H_
