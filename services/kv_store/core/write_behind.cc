#include "services/kv_store/core/write_behind.h"

#include <limits>
#include <utility>

#include "common/status/error.h"

namespace epic::kv_store {
namespace {

constexpr int64_t kRetryMs = 1000;

}  // namespace

WriteBehind::WriteBehind(const Options& options, std::function<absl::Status(const Item&)> write,
                         std::function<void()> housekeep)
    : options_(options),
      write_(std::move(write)),
      housekeep_(std::move(housekeep)),
      thread_([this] { Run(); }) {}

WriteBehind::~WriteBehind() { Stop(); }

Patience WriteBehind::PatienceFor(uint64_t bytes) const {
  return Patience(options_.wait_ms == 0 ? 0 : options_.wait_ms + DiskMsFor(bytes));
}

std::shared_ptr<WriteBehind::Job> WriteBehind::Add(Item item, bool may_wait) {
  const uint64_t bytes = BytesOf(item);
  const Patience patience = PatienceFor(bytes);
  while (!stopping_ && !jobs_.empty() && pending_bytes_ + bytes > options_.max_pending_bytes) {
    if (may_wait && patience.Wait(&changed_, &mu_)) continue;
    ++dropped_;
    return nullptr;
  }
  if (stopping_) return nullptr;
  auto job = std::make_shared<Job>();
  job->item = std::move(item);
  job->place = added_++;
  job->bytes = bytes;
  jobs_.push_back(job);
  pending_bytes_ += bytes;
  changed_.SignalAll();
  return job;
}

void WriteBehind::Enqueue(Item item, bool may_wait) {
  MutexLock lock(&mu_);
  Add(std::move(item), may_wait);
}

absl::Status WriteBehind::EnqueueAndWait(Item item) {
  MutexLock lock(&mu_);
  const Patience patience = PatienceFor(pending_bytes_ + BytesOf(item));
  const std::shared_ptr<Job> job = Add(std::move(item), /*may_wait=*/true);
  if (job == nullptr && stopping_) return absl::UnavailableError("the store is stopping");
  if (job != nullptr) {
    job->waited_for = true;
    while (!job->done && patience.Wait(&changed_, &mu_)) {
    }
    if (job->done) return job->result;
    job->waited_for = false;
  }
  return RetryLater(ErrorCode::kDeadline,
                    "the disk of the store did not take the object in time; it is served from memory, and "
                    "committing it again tries the disk again",
                    kRetryMs);
}

bool WriteBehind::WaitForProgress() {
  MutexLock lock(&mu_);
  if (jobs_.empty()) return false;
  const uint64_t before = finished_;
  const Patience patience = PatienceFor(jobs_.front()->bytes);
  while (finished_ == before) {
    if (!patience.Wait(&changed_, &mu_)) return false;
  }
  return true;
}

std::vector<ObjectPtr> WriteBehind::Drop(uint64_t bytes, bool waited_for_too) {
  std::vector<ObjectPtr> objects;
  uint64_t dropped_bytes = 0;
  for (auto job = jobs_.begin(); job != jobs_.end() && dropped_bytes < bytes;) {
    if ((*job)->running || ((*job)->waited_for && !waited_for_too)) {
      ++job;
      continue;
    }
    dropped_bytes += (*job)->bytes;
    pending_bytes_ -= (*job)->bytes;
    ++dropped_;
    ++finished_;
    objects.push_back(std::move((*job)->item.object));
    (*job)->result = absl::UnavailableError("the store is stopping");
    (*job)->done = true;
    job = jobs_.erase(job);
  }
  if (!objects.empty()) changed_.SignalAll();
  return objects;
}

bool WriteBehind::GiveUp(uint64_t bytes) {
  std::vector<ObjectPtr> objects;  // let go of without the lock
  MutexLock lock(&mu_);
  objects = Drop(bytes, /*waited_for_too=*/false);
  return !objects.empty();
}

void WriteBehind::Drain() {
  MutexLock lock(&mu_);
  const uint64_t next = added_;
  while (!jobs_.empty() && jobs_.front()->place < next) changed_.Wait(&mu_);
}

uint64_t WriteBehind::pending() const {
  MutexLock lock(&mu_);
  return jobs_.size();
}

uint64_t WriteBehind::dropped() const {
  MutexLock lock(&mu_);
  return dropped_;
}

void WriteBehind::Stop() {
  {
    MutexLock lock(&mu_);
    if (!stopping_) until_drop_ = PatienceFor(pending_bytes_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void WriteBehind::Run() {
  while (true) {
    std::vector<ObjectPtr> dropped;  // let go of without the lock
    std::shared_ptr<Job> job;
    {
      MutexLock lock(&mu_);
      bool in_time = true;
      while (jobs_.empty() && !stopping_ && in_time) in_time = changed_.WaitForMs(&mu_, options_.period_ms);
      if (stopping_ && until_drop_.is_over()) {
        dropped = Drop(std::numeric_limits<uint64_t>::max(), /*waited_for_too=*/true);
      }
      if (jobs_.empty() && stopping_) return;
      if (!jobs_.empty()) {
        job = jobs_.front();
        job->running = true;
      }
    }
    if (job != nullptr) {
      absl::Status result = write_(job->item);
      job->item = {};  // lets go of the object before anybody is told
      MutexLock lock(&mu_);
      job->result = std::move(result);
      job->done = true;
      jobs_.pop_front();
      pending_bytes_ -= job->bytes;
      ++finished_;
      changed_.SignalAll();
    }
    housekeep_();
  }
}

}  // namespace epic::kv_store
