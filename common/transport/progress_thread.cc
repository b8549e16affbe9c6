#include "common/transport/progress_thread.h"

#include <utility>

namespace epic::transport {

ProgressThread::ProgressThread() : thread_([this] { Run(); }) {}

bool ProgressThread::Post(std::function<void()> step) {
  MutexLock lock(&mu_);
  if (stopping_) return false;
  steps_.push_back(std::move(step));
  wake_.Signal();
  return true;
}

void ProgressThread::Stop() {
  MutexLock join(&join_mu_);
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    wake_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ProgressThread::Run() {
  while (true) {
    std::function<void()> step;
    {
      MutexLock lock(&mu_);
      while (steps_.empty() && !stopping_) wake_.Wait(&mu_);
      if (steps_.empty()) return;
      step = std::move(steps_.front());
      steps_.pop_front();
    }
    step();
  }
}

}  // namespace epic::transport
