#include "services/kv_store/core/write_behind.h"

#include <utility>

namespace epic::kv_store {

WriteBehind::WriteBehind(const Options& options, std::function<absl::Status(const Item&)> write,
                         std::function<void()> housekeep)
    : options_(options),
      write_(std::move(write)),
      housekeep_(std::move(housekeep)),
      thread_([this] { Run(); }) {}

WriteBehind::~WriteBehind() { Stop(); }

std::shared_ptr<WriteBehind::Job> WriteBehind::Add(Item item) {
  const uint64_t bytes = BytesOf(item);
  while (!stopping_ && !jobs_.empty() && pending_bytes_ + bytes > options_.max_pending_bytes)
    changed_.Wait(&mu_);
  if (stopping_) return nullptr;
  auto job = std::make_shared<Job>();
  job->item = std::move(item);
  jobs_.push_back(job);
  pending_bytes_ += bytes;
  changed_.SignalAll();
  return job;
}

void WriteBehind::Enqueue(Item item) {
  MutexLock lock(&mu_);
  Add(std::move(item));
}

absl::Status WriteBehind::EnqueueAndWait(Item item) {
  MutexLock lock(&mu_);
  const std::shared_ptr<Job> job = Add(std::move(item));
  if (job == nullptr) return absl::UnavailableError("the store is stopping");
  while (!job->done) changed_.Wait(&mu_);
  return job->result;
}

bool WriteBehind::WaitForProgress() {
  MutexLock lock(&mu_);
  if (jobs_.empty()) return false;
  const uint64_t before = finished_;
  while (finished_ == before) changed_.Wait(&mu_);
  return true;
}

void WriteBehind::Drain() {
  MutexLock lock(&mu_);
  const uint64_t target = finished_ + jobs_.size();
  while (finished_ < target) changed_.Wait(&mu_);
}

uint64_t WriteBehind::pending() const {
  MutexLock lock(&mu_);
  return jobs_.size();
}

void WriteBehind::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void WriteBehind::Run() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      MutexLock lock(&mu_);
      bool in_time = true;
      while (jobs_.empty() && !stopping_ && in_time) in_time = changed_.WaitForMs(&mu_, options_.period_ms);
      if (jobs_.empty() && stopping_) return;
      if (!jobs_.empty()) job = jobs_.front();
    }
    if (job != nullptr) {
      absl::Status result = write_(job->item);
      const uint64_t bytes = BytesOf(job->item);
      job->item = {};  // lets go of the object before anybody is told
      MutexLock lock(&mu_);
      job->result = std::move(result);
      job->done = true;
      jobs_.pop_front();
      pending_bytes_ -= bytes;
      ++finished_;
      changed_.SignalAll();
    }
    housekeep_();
  }
}

}  // namespace epic::kv_store
