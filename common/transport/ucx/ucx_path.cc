#include "common/transport/ucx/ucx_path.h"

#include <utility>

#include "common/base/check.h"

namespace epic::transport {
namespace {

absl::Status Closed() { return PathDownStatus("the path is closed, or its thread has too much to do"); }

}  // namespace

void UcxPathState::Init(PathShared shared, std::shared_ptr<TicketSource> tickets, PathCoreOptions options,
                        PeerDownFn peer_down, uint64_t seed) {
  EPIC_CHECK(core_ == nullptr);
  core_ = std::make_shared<PathCore>(
      std::move(shared), std::move(tickets), options, std::move(peer_down),
      [weak = weak_from_this()](FetchId id) {
        if (const auto state = weak.lock()) state->End(id);
      },
      seed);
}

FetchId UcxPathState::Begin() {
  MutexLock lock(&mu_);
  if (stopping_) return 0;
  live_.insert(next_);
  return next_++;
}

void UcxPathState::End(FetchId id) {
  MutexLock lock(&mu_);
  live_.erase(id);
  cancelled_.erase(id);
  if (live_.empty()) changed_.SignalAll();
}

FetchId UcxPathState::Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) {
  const FetchId id = Begin();
  if (id != 0 && loop_->TryPost([self = shared_from_this(), id, request, listener] {
        self->core_->Fetch(id, request, listener);
      })) {
    return id;
  }
  for (size_t range = 0; range < request.ranges.size(); ++range) listener->OnRange(range, Closed(), {});
  listener->OnDone(Closed());
  if (id != 0) End(id);
  MutexLock lock(&mu_);
  return id != 0 ? id : next_++;
}

void UcxPathState::Cancel(FetchId id) {
  {
    MutexLock lock(&mu_);
    if (!live_.contains(id) || !cancelled_.insert(id).second) return;
  }
  loop_->Post([self = shared_from_this(), id] { self->core_->Cancel(id); });
}

void UcxPathState::Probe(int64_t deadline_ns, std::function<void(const absl::Status&)> done) {
  const FetchId id = Begin();
  if (id != 0 && loop_->TryPost([self = shared_from_this(), id, deadline_ns, done] {
        self->core_->Probe(id, deadline_ns, done);
      })) {
    return;
  }
  done(Closed());
  if (id != 0) End(id);
}

void UcxPathState::Stop() {
  bool first = false;
  {
    MutexLock lock(&mu_);
    first = !std::exchange(stopping_, true);
  }
  if (first) {
    const bool posted = loop_->Post([self = shared_from_this()] {
      self->core_->Stop(CancelledStatus());
      MutexLock lock(&self->mu_);
      self->stopped_ = true;
      self->changed_.SignalAll();
    });
    // A node has stopped its paths before its loop, but for one that was made afterwards: it never began.
    MutexLock lock(&mu_);
    if (!posted) stopped_ = true;
  }
  MutexLock lock(&mu_);
  while (!stopped_ || !live_.empty()) changed_.Wait(&mu_);
}

}  // namespace epic::transport
