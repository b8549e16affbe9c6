#include "services/kv_store/core/eraser.h"

#include <utility>

namespace epic::kv_store {
namespace {

constexpr int64_t kRetryNs = int64_t{60} * 1'000'000'000;

}  // namespace

void Eraser::Load(std::string row) {
  MutexLock lock(&mu_);
  due_.insert(std::move(row));
}

void Eraser::Add(std::string row, Done done) {
  {
    MutexLock lock(&mu_);
    due_.insert(std::move(row));
    if (!stopping_) {
      waiting_.push_back(std::move(done));
      return Begin();
    }
  }
  done(absl::UnavailableError("the store is stopping"));
}

void Eraser::RetryDue() {
  MutexLock lock(&mu_);
  if (due_.empty() || stopping_ || wanted_ || running_) return;
  if (failed_ns_ == 0 || clock_->SteadyNs() - failed_ns_ >= kRetryNs) Begin();
}

void Eraser::Begin() {
  wanted_ = true;
  changed_.SignalAll();
}

void Eraser::Drain() {
  MutexLock lock(&mu_);
  while ((wanted_ && !stopping_) || running_) changed_.Wait(&mu_);
}

void Eraser::Refuse() {
  std::vector<Done> left;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    left.swap(waiting_);
    changed_.SignalAll();
  }
  for (const Done& done : left) done(absl::UnavailableError("the store is stopping"));
}

void Eraser::Stop() {
  Refuse();
  if (thread_.joinable()) thread_.join();
}

void Eraser::Run() {
  while (true) {
    std::vector<std::string> rows;
    std::vector<Done> served;
    {
      MutexLock lock(&mu_);
      while (!wanted_ && !stopping_) changed_.Wait(&mu_);
      if (stopping_) return;
      wanted_ = false;
      running_ = true;
      rows.assign(due_.begin(), due_.end());
      served.swap(waiting_);
    }
    const absl::Status status = work_(rows);
    {
      MutexLock lock(&mu_);
      failed_ns_ = status.ok() ? 0 : clock_->SteadyNs();
      if (status.ok()) {
        for (const std::string& row : rows) due_.erase(row);
      }
    }
    for (const Done& done : served) done(status);
    MutexLock lock(&mu_);
    running_ = false;
    changed_.SignalAll();
  }
}

}  // namespace epic::kv_store
