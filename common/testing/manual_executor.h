// An executor whose tasks run when a test says so, on the test's thread. Thread-safe for submissions.
#ifndef EPIC_COMMON_TESTING_MANUAL_EXECUTOR_H_
#define EPIC_COMMON_TESTING_MANUAL_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"

namespace epic::testing {

class ManualExecutor final : public Executor {
 public:
  explicit ManualExecutor(size_t max_queue = std::numeric_limits<size_t>::max()) : max_queue_(max_queue) {}

  bool TrySubmit(std::function<void()> task) override {
    MutexLock lock(&mu_);
    if (queue_.size() >= max_queue_) return false;
    queue_.push_back(std::move(task));
    return true;
  }
  void Submit(std::function<void()> task) override {
    MutexLock lock(&mu_);
    queue_.push_back(std::move(task));
  }
  // Runs the oldest task. False when there was none.
  bool RunOne() {
    std::function<void()> task;
    {
      MutexLock lock(&mu_);
      if (queue_.empty()) return false;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
    return true;
  }
  // Runs tasks, also those that tasks submit, until there is none.
  void RunAll() {
    while (RunOne()) {
    }
  }

 private:
  const size_t max_queue_;
  Mutex mu_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_TESTING_MANUAL_EXECUTOR_H_
