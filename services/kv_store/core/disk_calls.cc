#include "services/kv_store/core/disk_calls.h"

#include <algorithm>
#include <system_error>

namespace epic::kv_store {

Patience::Patience(int64_t ms) {
  if (ms > 0) until_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

bool Patience::Wait(CondVar* changed, Mutex* mu) const {
  if (!until_.has_value()) {
    changed->Wait(mu);
    return true;
  }
  const auto left = *until_ - std::chrono::steady_clock::now();
  if (left <= std::chrono::nanoseconds(0)) return false;
  changed->WaitForMs(mu, std::chrono::ceil<std::chrono::milliseconds>(left).count());
  return true;
}

// False: refused.
bool DiskCalls::Submit(const std::shared_ptr<Job>& job) {
  if (late_running_ >= options_.late_max) return false;
  waiting_.push_back(job);
  work_.Signal();
  if (idle_ >= waiting_.size() || threads_.size() >= options_.threads_max) return true;
  try {
    threads_.emplace_back([this] { Work(); });
  } catch (const std::system_error&) {  // there are no more: it waits for one of those there are
    if (!threads_.empty()) return true;
    waiting_.pop_back();
    return false;
  }
  return true;
}

DiskCalls::End DiskCalls::Run(std::function<void()> call, int64_t extra_ms) {
  const auto job = std::make_shared<Job>();
  {
    const MutexLock lock(&mu_);
    if (bounded() && !stopping_) {
      job->call = std::move(call);
      if (!Submit(job)) {
        ++late_;
        return End::kRefused;
      }
      const Patience patience(options_.wait_ms + extra_ms);
      while (job->state <= Job::State::kRunning && patience.Wait(&job->changed, &mu_)) {
      }
      if (job->state == Job::State::kDone) return End::kDone;
      ++late_;
      if (job->state == Job::State::kRunning) {
        job->late = true;
        ++late_running_;
        return End::kLate;
      }
      std::erase(waiting_, job);
      return End::kRefused;
    }
  }
  call();
  return End::kDone;
}

void DiskCalls::Work() {
  mu_.Lock();
  while (true) {
    ++idle_;
    while (waiting_.empty() && !stopping_) work_.Wait(&mu_);
    --idle_;
    if (stopping_) break;
    const std::shared_ptr<Job> job = std::move(waiting_.front());
    waiting_.pop_front();
    job->state = Job::State::kRunning;
    mu_.Unlock();
    job->call();
    job->call = nullptr;  // lets go of what it needs before anybody is told
    mu_.Lock();
    job->state = Job::State::kDone;
    if (job->late) --late_running_;
    job->changed.Signal();
  }
  mu_.Unlock();
}

uint64_t DiskCalls::late() const {
  const MutexLock lock(&mu_);
  return late_;
}

void DiskCalls::Stop() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& job : waiting_) {
      job->state = Job::State::kRefused;
      job->changed.Signal();
    }
    waiting_.clear();
    threads.swap(threads_);
    work_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace epic::kv_store
