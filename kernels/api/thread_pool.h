// The one pool of compute threads of a process. The calling thread works too; nobody spins longer than a few
// microseconds while there is no work.
//
// ParallelFor is called by one thread at a time (the engine loop). Libraries with threads of their own are
// kept to one thread by the op that calls them (matmul_dnnl.cc).
#ifndef EPIC_KERNELS_API_THREAD_POOL_H_
#define EPIC_KERNELS_API_THREAD_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace epic {

class ThreadPool {
 public:
  // REQUIRES: threads >= 1, the caller included.
  explicit ThreadPool(uint32_t threads);
  // Waits for the workers to end. REQUIRES: no ParallelFor is running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const;
  // Runs task(index, worker) for every index in [0, count), each once, worker in [0, threads()); returns when
  // all are done. Indices are taken from the highest down, so put the longest tasks last. Which worker runs
  // which index is not fixed: results must not depend on it.
  // REQUIRES: count < 2^32; `task` does not throw and does not call ParallelFor.
  void ParallelFor(size_t count, const std::function<void(size_t index, uint32_t worker)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epic

#endif  // EPIC_KERNELS_API_THREAD_POOL_H_
