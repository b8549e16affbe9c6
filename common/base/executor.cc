#include "common/base/executor.h"

#include <utility>

#include "common/base/check.h"

namespace epic {

ThreadExecutor::ThreadExecutor(uint32_t threads, size_t max_queue) : max_queue_(max_queue) {
  EPIC_CHECK(threads > 0);
  threads_.reserve(threads);
  for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

bool ThreadExecutor::TrySubmit(std::function<void()> task) {
  MutexLock lock(&mu_);
  if (stopping_ || queue_.size() >= max_queue_) return false;
  queue_.push_back(std::move(task));
  wake_.Signal();
  return true;
}

void ThreadExecutor::Submit(std::function<void()> task) {
  {
    MutexLock lock(&mu_);
    if (!stopping_) {
      queue_.push_back(std::move(task));
      wake_.Signal();
      return;
    }
  }
  task();
}

void ThreadExecutor::Stop() {
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    stopping_ = true;
    wake_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void ThreadExecutor::Run() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !stopping_) wake_.Wait(&mu_);
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace epic
