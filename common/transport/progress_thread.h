// A thread that runs short steps one after the other, for paths whose state belongs to one thread. Owned by
// the path. Thread-safe. The queue is bounded by what the path admits: a fetch has at most one step waiting
// for each of its ranges.
#ifndef EPIC_COMMON_TRANSPORT_PROGRESS_THREAD_H_
#define EPIC_COMMON_TRANSPORT_PROGRESS_THREAD_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic::transport {

class ProgressThread {
 public:
  ProgressThread();
  ~ProgressThread() { Stop(); }
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // False once Stop was called: the step is dropped.
  [[nodiscard]] bool Post(std::function<void()> step) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs what was posted, then waits for the thread. Idempotent, from any thread but its own.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_, join_mu_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex join_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  Mutex mu_;
  CondVar wake_;
  std::deque<std::function<void()>> steps_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_ ABSL_GUARDED_BY(join_mu_);
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_PROGRESS_THREAD_H_
