#include "common/base/timers.h"

#include <utility>

namespace epic {

TimerThread::TimerThread(const Clock* clock) : clock_(clock), thread_([this] { Run(); }) {}

TimerId TimerThread::At(int64_t steady_ns, std::function<void()> callback) {
  MutexLock lock(&mu_);
  const TimerId id = next_id_++;
  if (stopping_) return id;
  due_.emplace(std::pair(steady_ns, id), std::move(callback));
  ids_.emplace(id, steady_ns);
  wake_.Signal();
  return id;
}

void TimerThread::Cancel(TimerId id) {
  std::function<void()> dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = ids_.find(id);
  if (found == ids_.end()) return;
  const auto entry = due_.find({found->second, id});
  dropped = std::move(entry->second);
  due_.erase(entry);
  ids_.erase(found);
}

void TimerThread::Stop() {
  std::map<std::pair<int64_t, TimerId>, std::function<void()>> dropped;
  {
    MutexLock lock(&mu_);
    if (stopping_) return;
    stopping_ = true;
    dropped.swap(due_);
    ids_.clear();
    wake_.Signal();
  }
  thread_.join();
}

void TimerThread::Run() {
  while (true) {
    std::function<void()> callback;
    {
      MutexLock lock(&mu_);
      while (!stopping_ && callback == nullptr) {
        if (due_.empty()) {
          wake_.Wait(&mu_);
          continue;
        }
        const auto first = due_.begin();
        const int64_t left_ns = first->first.first - clock_->SteadyNs();
        if (left_ns > 0) {
          wake_.WaitForMs(&mu_, (left_ns + 999'999) / 1'000'000);
          continue;
        }
        callback = std::move(first->second);
        ids_.erase(first->first.second);
        due_.erase(first);
      }
      if (stopping_) return;
    }
    callback();
  }
}

}  // namespace epic
