// A small bounded executor for work that may block on a disk, so that no engine or network thread does.
//
// TrySubmit is for new work and refuses when the queue is full: the caller answers "queue full". Submit is
// for the next step of work that was admitted already (one such step per admitted piece of work at a time, so
// the queue stays bounded by what was admitted). Thread-safe. Tests use common/testing/manual_executor.h.
#ifndef EPIC_COMMON_BASE_EXECUTOR_H_
#define EPIC_COMMON_BASE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic {

class Executor {
 public:
  virtual ~Executor() = default;
  // False when the queue is full or the executor has stopped; the task is then dropped.
  [[nodiscard]] virtual bool TrySubmit(std::function<void()> task) = 0;
  // Always runs the task: on a worker, or at once on the caller's thread when the executor has stopped.
  virtual void Submit(std::function<void()> task) = 0;
};

class ThreadExecutor final : public Executor {
 public:
  // REQUIRES: threads > 0.
  ThreadExecutor(uint32_t threads, size_t max_queue);
  ~ThreadExecutor() override { Stop(); }
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  bool TrySubmit(std::function<void()> task) override;
  void Submit(std::function<void()> task) override;
  // Runs what is queued, then waits for the threads. Idempotent. Not from one of its own tasks.
  void Stop();

 private:
  void Run();

  const size_t max_queue_;
  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // constructor and the one Stop that joins
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_EXECUTOR_H_
