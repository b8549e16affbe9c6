// A few threads with a bounded queue, for calls that may block on a disk or parse a large body, so that the
// I/O threads never do. Owned by the HTTP door. Thread-safe.
#ifndef EPIC_SERVICES_ROUTER_HTTP_WORKER_POOL_H_
#define EPIC_SERVICES_ROUTER_HTTP_WORKER_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"

namespace epic {

class WorkerPool {
 public:
  // REQUIRES: threads > 0.
  WorkerPool(uint32_t threads, uint32_t max_queued);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full or the pool stops: the task was not taken. A task must not throw.
  bool TryRun(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);
  // Drops what is queued and waits for what runs. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Loop() ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after construction.
  const uint32_t max_queued_;
  // Guarded by mu_.
  Mutex mu_;
  CondVar changed_;  // of queue_ and stopping_
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  // Started by the constructor, joined by Stop.
  std::vector<std::thread> threads_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_WORKER_POOL_H_
