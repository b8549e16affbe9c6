#include "common/coordination/etcd/etcd_coordinator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/system_random.h"
#include "common/coordination/etcd/etcd_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

constexpr int64_t kNsInMs = 1'000'000;
constexpr int64_t kPauseMs = 100;  // between two rounds of all endpoints
constexpr int64_t kPageKeys = 1000;
constexpr int64_t kMaxLeaseMs = 24 * 3600 * 1000;

absl::Status Stopped() { return Error(ErrorCode::kClientGone, "the coordinator has stopped"); }

auto StartRange() {
  return [](EtcdEndpoint& endpoint, grpc::ClientContext* context, const etcdpb::RangeRequest* request,
            etcdpb::RangeResponse* response, std::function<void(grpc::Status)> ended) {
    endpoint.kv->async()->Range(context, request, response, std::move(ended));
  };
}

}  // namespace

struct EtcdCoordinator::ListCall {
  KeyRange range;
  Revision at = 0;  // of the caller; 0: now
  Done<Listing> done;
  Attempts attempts;
  Listing listing;         // the pages so far
  std::string next;        // key of the next page; empty: the first
  bool restarted = false;  // since the revision of its pages was compacted
};

struct EtcdCoordinator::GrantCall {
  int64_t ttl_ms = 0;
  LeaseId id = 0;
  int64_t first_sent_ns = 0;
  LeaseListener listener;
  Done<Lease> done;
  Attempts attempts;
};

EtcdCoordinator::EtcdCoordinator(const EtcdOptions& options)
    : core_(std::make_shared<EtcdCore>(options)), leases_(core_.get()), watches_(core_.get()) {
  core_->OnHistoryLost([this] { watches_.EndAll(); });
  core_->Dispatch([this] { Probe(); });
}

uint64_t EtcdCoordinator::Enter(std::function<void(absl::Status)> fail) {
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    if (stopped_) {
      refused = Stopped();
    } else if (calls_.size() >= CoordinationLimits::kCalls) {
      refused = Error(ErrorCode::kQueueFull, "too many calls at a time: try again later");
    } else {
      calls_[next_call_] = std::move(fail);
      return next_call_++;
    }
  }
  fail(std::move(refused));
  return 0;
}

bool EtcdCoordinator::Leave(uint64_t call) {
  std::function<void(absl::Status)> dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return false;
  dropped = std::move(found->second);
  calls_.erase(found);
  return true;
}

EtcdCoordinator::Attempts EtcdCoordinator::NewAttempts(uint64_t call) const {
  const EtcdOptions& options = core_->options();
  return {call, options.clock->SteadyNs() + options.call_ms * kNsInMs, 0};
}

int64_t EtcdCoordinator::LeftMs(const Attempts& attempts) const {
  return (attempts.deadline_ns - core_->options().clock->SteadyNs()) / kNsInMs;
}

bool EtcdCoordinator::TryAgain(const Attempts& attempts, std::function<void()> again) {
  const bool pause = attempts.count % core_->endpoints() == 0;
  if (LeftMs(attempts) <= (pause ? kPauseMs : 0)) return false;
  core_->After(pause ? kPauseMs : 0, std::move(again));
  return true;
}

absl::Status EtcdCoordinator::StatusOf(const grpc::Status& status, size_t endpoint) const {
  return FromEtcdStatus(status, core_->endpoint(endpoint).address);
}

void EtcdCoordinator::List(KeyRange range, Revision at, Done<Listing> done) {
  absl::Status valid = ValidateRange(range);
  if (valid.ok() && at < 0) valid = Error(ErrorCode::kInvalidRequest, "revisions are above 0", "at");
  if (!valid.ok()) return done(std::move(valid));
  const uint64_t id = Enter([done](absl::Status status) { done(std::move(status)); });
  if (id == 0) return;
  auto call = std::make_shared<ListCall>();
  call->range = std::move(range);
  call->at = at;
  call->done = std::move(done);
  call->attempts = NewAttempts(id);
  ListOn(call);
}

void EtcdCoordinator::ListOn(const std::shared_ptr<ListCall>& call) {
  EtcdRange wire = ToEtcd(call->range);
  etcdpb::RangeRequest request;
  request.set_key(call->next.empty() ? std::move(wire.key) : call->next);
  request.set_range_end(std::move(wire.end));
  request.set_limit(kPageKeys);
  // Later pages are of the revision of the first.
  request.set_revision(call->next.empty() ? call->at : call->listing.revision);
  const int64_t left_ms = std::max<int64_t>(1, LeftMs(call->attempts));
  core_->Unary<etcdpb::RangeResponse>(
      std::move(request), std::min(left_ms, core_->options().attempt_ms), StartRange(),
      [this, call](const EtcdCore::Result<etcdpb::RangeResponse>& result) { Listed(call, result); });
}

void EtcdCoordinator::Listed(const std::shared_ptr<ListCall>& call,
                             const EtcdCore::Result<etcdpb::RangeResponse>& result) {
  absl::Status status = StatusOf(result.status, result.endpoint);
  if (status.ok()) {
    core_->Answered(result.endpoint, result.mark, result.response.header());
    if (call->next.empty()) {
      call->listing.revision = call->at != 0 ? call->at : result.response.header().revision();
    }
    for (const etcdpb::KeyValue& item : result.response.kvs()) call->listing.items.push_back(FromEtcd(item));
    if (result.response.more() && call->listing.items.size() >= CoordinationLimits::kListedKeys) {
      status = Error(ErrorCode::kQueueFull, "more keys than can be listed: ask for a longer prefix");
    } else if (result.response.more() && result.response.kvs_size() > 0) {
      call->next = call->listing.items.back().key + std::string(1, '\0');
      return ListOn(call);
    }
  } else if (IsUnanswered(result.status)) {
    ++call->attempts.count;
    if (TryAgain(call->attempts, [this, call] { ListOn(call); })) return;
  } else if (absl::IsOutOfRange(status) && call->at == 0 && !std::exchange(call->restarted, true)) {
    call->next.clear();
    call->listing = {};
    return ListOn(call);
  }
  if (!Leave(call->attempts.call)) return;
  if (!status.ok()) return call->done(std::move(status));
  call->done(std::move(call->listing));
}

void EtcdCoordinator::Commit(Transaction transaction, Done<TransactionResult> done) {
  if (absl::Status valid = ValidateTransaction(transaction); !valid.ok()) return done(std::move(valid));
  const uint64_t id = Enter([done](absl::Status status) { done(std::move(status)); });
  if (id == 0) return;
  core_->Unary<etcdpb::TxnResponse>(
      ToEtcd(transaction), core_->options().call_ms,
      [](EtcdEndpoint& endpoint, grpc::ClientContext* context, const etcdpb::TxnRequest* request,
         etcdpb::TxnResponse* response, std::function<void(grpc::Status)> ended) {
        endpoint.kv->async()->Txn(context, request, response, std::move(ended));
      },
      [this, id, guards = transaction.guards.size(),
       done = std::move(done)](const EtcdCore::Result<etcdpb::TxnResponse>& result) {
        if (!Leave(id)) return;
        if (!result.status.ok()) return done(StatusOf(result.status, result.endpoint));
        core_->Answered(result.endpoint, result.mark, result.response.header());
        done(FromEtcd(result.response, guards));
      });
}

void EtcdCoordinator::GrantLease(int64_t ttl_ms, LeaseListener listener, Done<Lease> done) {
  if (ttl_ms <= 0 || ttl_ms > kMaxLeaseMs) {
    return done(Error(ErrorCode::kInvalidRequest, "a lease lasts above 0 and at most a day", "ttl_ms"));
  }
  if (leases_.size() >= CoordinationLimits::kLeases) {
    return done(Error(ErrorCode::kQueueFull, "too many leases at a time: end one first"));
  }
  const uint64_t id = Enter([done](absl::Status status) { done(std::move(status)); });
  if (id == 0) return;
  auto call = std::make_shared<GrantCall>();
  call->ttl_ms = ttl_ms;
  call->id = static_cast<LeaseId>(SystemRandom() >> 2) + 1;
  call->listener = std::move(listener);
  call->done = std::move(done);
  call->attempts = NewAttempts(id);
  GrantOn(call);
}

void EtcdCoordinator::GrantOn(const std::shared_ptr<GrantCall>& call) {
  etcdpb::LeaseGrantRequest request;
  request.set_id(call->id);
  request.set_ttl((call->ttl_ms + 999) / 1000);
  const int64_t left_ms = std::max<int64_t>(1, LeftMs(call->attempts));
  core_->Unary<etcdpb::LeaseGrantResponse>(
      std::move(request), std::min(left_ms, core_->options().attempt_ms),
      [](EtcdEndpoint& endpoint, grpc::ClientContext* context, const etcdpb::LeaseGrantRequest* request,
         etcdpb::LeaseGrantResponse* response, std::function<void(grpc::Status)> ended) {
        endpoint.lease->async()->LeaseGrant(context, request, response, std::move(ended));
      },
      [this, call](const EtcdCore::Result<etcdpb::LeaseGrantResponse>& result) { Granted(call, result); });
}

void EtcdCoordinator::Granted(const std::shared_ptr<GrantCall>& call,
                              const EtcdCore::Result<etcdpb::LeaseGrantResponse>& result) {
  if (call->first_sent_ns == 0) call->first_sent_ns = result.sent_ns;
  if (IsUnanswered(result.status)) {
    ++call->attempts.count;
    if (TryAgain(call->attempts, [this, call] { GrantOn(call); })) return;
  }
  Lease lease{call->id, (call->ttl_ms + 999) / 1000 * 1000};
  // The id is ours alone: an attempt of before was heard, though its answer was not.
  const bool was_granted =
      call->attempts.count > 0 && result.status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
  if (result.status.ok()) lease.ttl_ms = result.response.ttl() * 1000;
  if (!Leave(call->attempts.call)) return;
  if (!result.status.ok() && !was_granted) return call->done(StatusOf(result.status, result.endpoint));
  leases_.Add(lease, call->first_sent_ns, std::move(call->listener));
  call->done(lease);
}

void EtcdCoordinator::RevokeLease(LeaseId lease, DoneStatus done) {
  leases_.Forget(lease);
  const uint64_t id = Enter(done);
  if (id != 0) RevokeOn(lease, NewAttempts(id), done);
}

void EtcdCoordinator::RevokeOn(LeaseId lease, Attempts attempts, const DoneStatus& done) {
  etcdpb::LeaseRevokeRequest request;
  request.set_id(lease);
  const int64_t left_ms = std::max<int64_t>(1, LeftMs(attempts));
  core_->Unary<etcdpb::LeaseRevokeResponse>(
      std::move(request), std::min(left_ms, core_->options().attempt_ms),
      [](EtcdEndpoint& endpoint, grpc::ClientContext* context, const etcdpb::LeaseRevokeRequest* request,
         etcdpb::LeaseRevokeResponse* response, std::function<void(grpc::Status)> ended) {
        endpoint.lease->async()->LeaseRevoke(context, request, response, std::move(ended));
      },
      [this, lease, attempts, done](const EtcdCore::Result<etcdpb::LeaseRevokeResponse>& result) {
        Attempts next = attempts;
        ++next.count;
        if (IsUnanswered(result.status) &&
            TryAgain(next, [this, lease, next, done] { RevokeOn(lease, next, done); })) {
          return;
        }
        if (!Leave(attempts.call)) return;
        const bool is_gone = result.status.error_code() == grpc::StatusCode::NOT_FOUND;
        done(is_gone ? absl::OkStatus() : StatusOf(result.status, result.endpoint));
      });
}

absl::StatusOr<WatchId> EtcdCoordinator::Watch(KeyRange range, Revision from, WatchListener listener) {
  EPIC_RETURN_IF_ERROR(ValidateRange(range));
  if (from <= 0) return Error(ErrorCode::kInvalidRequest, "a watch begins at a revision above 0", "from");
  {
    MutexLock lock(&mu_);
    if (stopped_) return Stopped();
  }
  return watches_.Add(std::move(range), from, std::move(listener));
}

void EtcdCoordinator::Probe() {
  etcdpb::RangeRequest request;
  request.set_key(std::string(1, '\0'));
  request.set_limit(1);
  request.set_keys_only(true);
  core_->Unary<etcdpb::RangeResponse>(
      std::move(request), core_->options().probe_ms, StartRange(),
      [this](const EtcdCore::Result<etcdpb::RangeResponse>& result) {
        // An answer that refuses is one, too, but tells no revision.
        if (result.status.ok()) core_->Answered(result.endpoint, result.mark, result.response.header());
        core_->After(result.status.ok() ? core_->options().probe_ms : kPauseMs, [this] { Probe(); });
      });
}

void EtcdCoordinator::Stop() {
  std::map<uint64_t, std::function<void(absl::Status)>> waiting;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  core_->Stop();
  {
    MutexLock lock(&mu_);
    waiting.swap(calls_);
  }
  for (const auto& [id, fail] : waiting) fail(Stopped());
  leases_.Clear();
  watches_.Clear();
}

}  // namespace epic
