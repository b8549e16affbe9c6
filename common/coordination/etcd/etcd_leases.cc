#include "common/coordination/etcd/etcd_leases.h"

#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace epic {
namespace {

constexpr int64_t kRetryMs = 100;
constexpr int64_t kNsInMs = 1'000'000;

int64_t RenewEveryMs(int64_t ttl_ms) { return ttl_ms * 3 / 10; }
// A tenth before its end: who holds it has that time to stop what the lease allows.
int64_t UncertainAfterMs(int64_t ttl_ms) { return ttl_ms * 9 / 10; }

// One renewal: a stream with one message each way. Frees itself.
class Renewal final
    : public grpc::ClientBidiReactor<etcdpb::LeaseKeepAliveRequest, etcdpb::LeaseKeepAliveResponse> {
 public:
  // `ended`: the time left in seconds; nullopt when there was no answer. On the thread that calls back.
  Renewal(std::shared_ptr<EtcdCore> core, LeaseId id, std::function<void(std::optional<int64_t>)> ended)
      : core_(std::move(core)), ended_(std::move(ended)) {
    request_.set_id(id);
  }

  // False, and it is gone, when there are no calls any more.
  void Start(int64_t deadline_ms) {
    endpoint_ = core_->current();
    call_ = core_->Begin(&context_, endpoint_, deadline_ms);
    if (call_ == 0) {
      delete this;
      return;
    }
    core_->endpoint(endpoint_).lease->async()->LeaseKeepAlive(&context_, this);
    StartRead(&response_);
    StartWriteLast(&request_, grpc::WriteOptions());
    const std::shared_ptr<EtcdCore> core = core_;
    const uint64_t call = call_;
    StartCall();  // it may be gone now
    core->Started(call);
  }
  void OnReadDone(bool ok) override {
    if (ok) ttl_s_ = response_.ttl();
  }
  void OnDone(const grpc::Status& status) override {
    if (!ttl_s_.has_value()) {
      core_->KeepaliveFailed();
      core_->Failed(endpoint_, status.ok()
                                   ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "a renewal was not answered")
                                   : status);
    }
    core_->Dispatch([ended = std::move(ended_), ttl_s = ttl_s_] { ended(ttl_s); });
    core_->End(call_);
    delete this;
  }

 private:
  const std::shared_ptr<EtcdCore> core_;
  std::function<void(std::optional<int64_t>)> ended_;
  grpc::ClientContext context_;
  etcdpb::LeaseKeepAliveRequest request_;
  etcdpb::LeaseKeepAliveResponse response_;
  size_t endpoint_ = 0;
  uint64_t call_ = 0;
  std::optional<int64_t> ttl_s_;
};

}  // namespace

size_t EtcdLeases::size() const {
  MutexLock lock(&mu_);
  return kept_.size();
}

void EtcdLeases::Add(const Lease& lease, int64_t sent_ns, Coordinator::LeaseListener listener) {
  {
    MutexLock lock(&mu_);
    kept_[lease.id] = {lease.ttl_ms, sent_ns, false, std::move(listener)};
  }
  core_->After(RenewEveryMs(lease.ttl_ms), [this, id = lease.id] { Renew(id); });
  core_->After(UncertainAfterMs(lease.ttl_ms), [this, id = lease.id] { CheckTime(id); });
}

void EtcdLeases::Forget(LeaseId id) {
  Kept dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = kept_.find(id);
  if (found == kept_.end()) return;
  dropped = std::move(found->second);
  kept_.erase(found);
}

void EtcdLeases::Clear() {
  std::map<LeaseId, Kept> dropped;
  MutexLock lock(&mu_);
  dropped.swap(kept_);
}

void EtcdLeases::Renew(LeaseId id) {
  int64_t deadline_ms = 0;
  {
    MutexLock lock(&mu_);
    const auto found = kept_.find(id);
    if (found == kept_.end()) return;
    deadline_ms = std::min(core_->options().attempt_ms, RenewEveryMs(found->second.ttl_ms));
  }
  const int64_t sent_ns = core_->options().clock->SteadyNs();
  auto* renewal =
      new Renewal(core_->shared_from_this(), id, [this, id, sent_ns](std::optional<int64_t> ttl_s) {
        if (ttl_s.has_value()) {
          Renewed(id, sent_ns, *ttl_s);
        } else {
          NotRenewed(id);
        }
      });
  renewal->Start(deadline_ms);  // frees itself
}

void EtcdLeases::Renewed(LeaseId id, int64_t sent_ns, int64_t ttl_s) {
  Kept lost;
  Coordinator::LeaseListener listener;
  std::optional<LeaseState> told;
  int64_t ttl_ms = 0;
  {
    MutexLock lock(&mu_);
    const auto found = kept_.find(id);
    if (found == kept_.end()) return;
    listener = found->second.listener;
    ttl_ms = found->second.ttl_ms;
    if (ttl_s < 1) {
      told = LeaseState::kLost;
      lost = std::move(found->second);
      kept_.erase(found);
    } else {
      found->second.confirmed_ns = std::max(found->second.confirmed_ns, sent_ns);
      if (std::exchange(found->second.uncertain, false)) told = LeaseState::kHeld;
    }
  }
  if (told.has_value()) listener(*told);
  if (told == LeaseState::kLost) return;
  core_->After(RenewEveryMs(ttl_ms), [this, id] { Renew(id); });
  if (told == LeaseState::kHeld) core_->After(0, [this, id] { CheckTime(id); });
}

void EtcdLeases::NotRenewed(LeaseId id) {
  core_->After(kRetryMs, [this, id] { Renew(id); });
}

void EtcdLeases::CheckTime(LeaseId id) {
  Coordinator::LeaseListener listener;
  int64_t left_ms = 0;
  {
    MutexLock lock(&mu_);
    const auto found = kept_.find(id);
    if (found == kept_.end() || found->second.uncertain) return;
    const int64_t age_ms = (core_->options().clock->SteadyNs() - found->second.confirmed_ns) / kNsInMs;
    left_ms = UncertainAfterMs(found->second.ttl_ms) - age_ms;
    if (left_ms <= 0) {
      found->second.uncertain = true;
      listener = found->second.listener;
    }
  }
  if (listener != nullptr) return listener(LeaseState::kUncertain);
  core_->After(left_ms, [this, id] { CheckTime(id); });
}

}  // namespace epic
