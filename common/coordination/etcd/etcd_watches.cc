#include "common/coordination/etcd/etcd_watches.h"

#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "common/coordination/etcd/etcd_convert.h"
#include "common/status/error.h"

namespace epic {
namespace {

constexpr int64_t kRetryMs = 50;
constexpr int kMostDoublings = 4;

// One stream of one watch. Frees itself. A read is on its way, or what it brought is being taken, until the
// stream has ended; hence the one hold.
class WatchStream final : public grpc::ClientBidiReactor<etcdpb::WatchRequest, etcdpb::WatchResponse> {
 public:
  using Taker = std::function<bool(uint64_t call, const etcdpb::WatchResponse&)>;
  using Ender = std::function<void(uint64_t call)>;

  WatchStream(std::shared_ptr<EtcdCore> core, Taker take, Ender ended)
      : core_(std::move(core)), take_(std::move(take)), ended_(std::move(ended)) {}

  // The number of its call; 0, and it is gone, when there are no calls any more.
  uint64_t Start(const KeyRange& range, Revision from) {
    const std::shared_ptr<EtcdCore> core = core_;
    EtcdRange wire = ToEtcd(range);
    etcdpb::WatchCreateRequest* create = request_.mutable_create_request();
    create->set_key(std::move(wire.key));
    create->set_range_end(std::move(wire.end));
    create->set_start_revision(from);
    endpoint_ = core_->current();
    call_ = core_->Begin(&context_, endpoint_, /*deadline_ms=*/0);
    const uint64_t call = call_;
    if (call == 0) {
      delete this;
      return 0;
    }
    core_->endpoint(endpoint_).watch->async()->Watch(&context_, this);
    AddHold();
    StartRead(&response_);
    StartWrite(&request_);
    StartCall();  // it may be gone now
    core->Started(call);
    return call;
  }
  void OnReadDone(bool ok) override {
    if (!ok) return RemoveHold();
    core_->DispatchAlways([this] {
      if (!core_->stopping() && !take_(call_, response_)) context_.TryCancel();
      response_.Clear();
      StartRead(&response_);
    });
  }
  void OnDone(const grpc::Status& status) override {
    core_->Failed(endpoint_, status);
    core_->Dispatch([ended = std::move(ended_), call = call_] { ended(call); });
    core_->End(call_);
    delete this;
  }

 private:
  const std::shared_ptr<EtcdCore> core_;
  const Taker take_;
  Ender ended_;
  grpc::ClientContext context_;
  etcdpb::WatchRequest request_;
  etcdpb::WatchResponse response_;
  size_t endpoint_ = 0;
  uint64_t call_ = 0;
};

}  // namespace

absl::StatusOr<WatchId> EtcdWatches::Add(KeyRange range, Revision from, Coordinator::WatchListener listener) {
  WatchId id = 0;
  {
    MutexLock lock(&mu_);
    if (watches_.size() >= CoordinationLimits::kWatches) {
      return Error(ErrorCode::kQueueFull, "too many watches at a time: end one first");
    }
    id = next_id_++;
    watches_[id] = {std::move(range), from, std::move(listener)};
  }
  core_->Dispatch([this, id] { Open(id); });
  return id;
}

void EtcdWatches::Remove(WatchId id) {
  Watched dropped;  // destroyed outside the lock
  {
    MutexLock lock(&mu_);
    const auto found = watches_.find(id);
    if (found == watches_.end()) return;
    dropped = std::move(found->second);
    watches_.erase(found);
  }
  core_->Cancel(dropped.call);
}

void EtcdWatches::EndAll() {
  std::map<WatchId, Watched> ended;
  {
    MutexLock lock(&mu_);
    ended.swap(watches_);
  }
  WatchUpdate update;
  update.kind = WatchUpdate::Kind::kHistoryChanged;
  for (const auto& [id, watched] : ended) {
    core_->Cancel(watched.call);
    watched.listener(update);
  }
}

void EtcdWatches::Clear() {
  std::map<WatchId, Watched> dropped;
  MutexLock lock(&mu_);
  dropped.swap(watches_);
}

void EtcdWatches::Open(WatchId id) {
  const uint64_t history = core_->mark().history;
  KeyRange range;
  Revision next = 0;
  {
    MutexLock lock(&mu_);
    const auto found = watches_.find(id);
    if (found == watches_.end() || found->second.call != 0) return;
    range = found->second.range;
    next = found->second.next;
    found->second.history = history;
  }
  auto* stream = new WatchStream(
      core_->shared_from_this(),
      [this, id](uint64_t call, const etcdpb::WatchResponse& response) { return Take(id, call, response); },
      [this, id](uint64_t call) { Ended(id, call); });
  const uint64_t call = stream->Start(range, next);  // frees itself
  bool wanted = false;
  {
    MutexLock lock(&mu_);
    const auto found = watches_.find(id);
    wanted = found != watches_.end();
    if (wanted) found->second.call = call;
  }
  if (!wanted) core_->Cancel(call);
}

bool EtcdWatches::Take(WatchId id, uint64_t call, const etcdpb::WatchResponse& response) {
  if (response.canceled()) {
    if (response.compact_revision() > 0) EndOne(id, WatchUpdate::Kind::kCompacted);
    if (response.compact_revision() == 0 && response.created()) EndOne(id, WatchUpdate::Kind::kRefused);
    return false;
  }
  WatchUpdate update;
  Coordinator::WatchListener listener;
  uint64_t history = 0;
  {
    MutexLock lock(&mu_);
    const auto found = watches_.find(id);
    if (found == watches_.end() || found->second.call != call) return false;
    Watched& watched = found->second;
    watched.failures = 0;
    for (const etcdpb::Event& event : response.events()) {
      if (event.kv().mod_revision() < watched.next) continue;
      update.changes.push_back(FromEtcd(event));
      update.revision = event.kv().mod_revision();
    }
    if (update.changes.empty()) return true;
    watched.next = update.revision + 1;
    history = watched.history;
    listener = watched.listener;
  }
  core_->Saw(history, update.revision);
  listener(update);
  return true;
}

void EtcdWatches::Ended(WatchId id, uint64_t call) {
  int failures = 0;
  {
    MutexLock lock(&mu_);
    const auto found = watches_.find(id);
    if (found == watches_.end() || found->second.call != call) return;
    found->second.call = 0;
    failures = found->second.failures++;
  }
  const int64_t pause_ms = failures == 0 ? 0 : kRetryMs << std::min(failures - 1, kMostDoublings);
  core_->After(pause_ms, [this, id] { Open(id); });
}

void EtcdWatches::EndOne(WatchId id, WatchUpdate::Kind why) {
  Watched ended;
  {
    MutexLock lock(&mu_);
    const auto found = watches_.find(id);
    if (found == watches_.end()) return;
    ended = std::move(found->second);
    watches_.erase(found);
  }
  WatchUpdate update;
  update.kind = why;
  ended.listener(update);
}

}  // namespace epic
