#include "common/rpc/pull/lease_keeper.h"

#include <algorithm>
#include <span>
#include <utility>

namespace epic {
namespace {

constexpr size_t kBatch = 1024;  // what one call may have
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kLookMs = 1000;

// Calls `call` with batches that are of one life of the node each.
template <typename Call>
void InBatches(const std::vector<RemoteLease>& leases, Call call) {
  for (size_t begin = 0; begin < leases.size();) {
    size_t end = begin + 1;
    while (end < leases.size() && end - begin < kBatch &&
           leases[end].incarnation == leases[begin].incarnation) {
      ++end;
    }
    call(std::span(leases).subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace

LeaseKeeper::LeaseKeeper(ObjectClient* objects, int64_t lease_ms, const Clock* clock)
    : objects_(objects), lease_ms_(lease_ms), clock_(clock), thread_([this] { Run(); }) {}

void LeaseKeeper::Keep(const RemoteLease& lease) {
  MutexLock lock(&mu_);
  kept_[lease] = clock_->SteadyNs() + lease_ms_ * kNsPerMs / 3;
}

void LeaseKeeper::LetGo(const RemoteLease& lease) {
  MutexLock lock(&mu_);
  if (kept_.erase(lease) == 0) return;
  over_.push_back(lease);
  changed_.Signal();
}

void LeaseKeeper::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

size_t LeaseKeeper::kept() const {
  MutexLock lock(&mu_);
  return kept_.size();
}

void LeaseKeeper::Run() {
  while (true) {
    std::vector<RemoteLease> release;
    std::vector<RemoteLease> renew;
    {
      MutexLock lock(&mu_);
      if (!stopping_ && over_.empty()) changed_.WaitForMs(&mu_, std::min(kLookMs, lease_ms_ / 3 + 1));
      if (stopping_) return;
      release.swap(over_);
      const int64_t now_ns = clock_->SteadyNs();
      for (auto& [lease, due_ns] : kept_) {
        if (due_ns > now_ns) continue;
        due_ns = now_ns + lease_ms_ * kNsPerMs / 3;
        renew.push_back(lease);
      }
    }
    Release(release);
    Renew(renew);
  }
}

// What fails here is told by the transfers themselves.
void LeaseKeeper::Renew(const std::vector<RemoteLease>& leases) {
  InBatches(leases, [this](std::span<const RemoteLease> batch) {
    objects_->Renew(batch, lease_ms_).status().IgnoreError();
  });
}

void LeaseKeeper::Release(const std::vector<RemoteLease>& leases) {
  InBatches(leases, [this](std::span<const RemoteLease> batch) {
    objects_->ConfirmAndRelease(batch).status().IgnoreError();
  });
}

}  // namespace epic
