#include "services/kv_store/core/load_progress.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "common/base/check.h"

namespace epic::kv_store {

std::vector<LoadProgress::Waiter> LoadProgress::TakeWaiters(uint32_t last) {
  const auto stays = [last](const Waiter& waiter) { return waiter.layer > last; };
  const auto taken = std::stable_partition(waiters_.begin(), waiters_.end(), stays);
  std::vector<Waiter> done(std::make_move_iterator(taken), std::make_move_iterator(waiters_.end()));
  waiters_.erase(taken, waiters_.end());
  return done;
}

void LoadProgress::SetReady(uint32_t layer) {
  std::vector<Waiter> done;  // told without the lock
  {
    MutexLock lock(&mu_);
    if (failed_) return;
    ready_.store(std::max(ready_.load(), layer + 1), std::memory_order_release);
    done = TakeWaiters(layer);
    changed_.SignalAll();
  }
  for (const Waiter& waiter : done) waiter.then();
}

void LoadProgress::Fail(const absl::Status& status) {
  EPIC_CHECK(!status.ok());
  std::vector<Waiter> done;
  {
    MutexLock lock(&mu_);
    if (failed_) return;
    error_ = status;
    failed_.store(true, std::memory_order_release);
    done = TakeWaiters(std::numeric_limits<uint32_t>::max());
    changed_.SignalAll();
  }
  for (const Waiter& waiter : done) waiter.then();
}

absl::Status LoadProgress::Wait(uint32_t layer) const {
  if (layer < ready()) return absl::OkStatus();
  MutexLock lock(&mu_);
  while (layer >= ready()) {
    if (failed_) return error_;
    changed_.Wait(&mu_);
  }
  return absl::OkStatus();
}

void LoadProgress::When(uint32_t layer, std::function<void()> then) const {
  {
    MutexLock lock(&mu_);
    if (layer >= ready() && !failed_) {
      waiters_.push_back({layer, std::move(then)});
      return;
    }
  }
  then();
}

}  // namespace epic::kv_store
