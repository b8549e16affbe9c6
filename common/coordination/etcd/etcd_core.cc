#include "common/coordination/etcd/etcd_core.h"

#include <grpcpp/support/channel_arguments.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "common/base/check.h"
#include "common/rpc/credentials.h"

namespace epic {
namespace {

constexpr int kMinBackoffMs = 50;
constexpr int kMaxBackoffMs = 500;
// etcd closes connections whose pings come more often than every 5 s.
constexpr int kPingEveryMs = 10'000;
constexpr int kPingTimeoutMs = 3'000;
constexpr int kMaxMessageBytes = 64 * 1024 * 1024;

EtcdEndpoint Connect(const std::string& address, const EtcdOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // Who repeats a call, and where, is decided here. And of gRPC's own repetition a call whose peer was killed
  // at the wrong moment never ended, neither by its deadline nor cancelled (1.51).
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  EtcdEndpoint endpoint;
  endpoint.address = address;
  endpoint.channel = MakeChannel(address, options.credentials.get(), arguments);
  endpoint.kv = etcdpb::KV::NewStub(endpoint.channel);
  endpoint.watch = etcdpb::Watch::NewStub(endpoint.channel);
  endpoint.lease = etcdpb::Lease::NewStub(endpoint.channel);
  endpoint.channel->GetState(/*try_to_connect=*/true);
  return endpoint;
}

}  // namespace

bool IsUnanswered(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::UNIMPLEMENTED:
      return true;
    default:
      return false;
  }
}

EtcdCore::EtcdCore(const EtcdOptions& options)
    : options_(options), dispatcher_(1, std::numeric_limits<size_t>::max()) {
  EPIC_CHECK(!options_.endpoints.empty() && options_.timers != nullptr);
  for (const std::string& address : options_.endpoints) endpoints_.push_back(Connect(address, options_));
  MutexLock lock(&mu_);
  health_.fault = "not reached yet";
}

size_t EtcdCore::current() const {
  MutexLock lock(&mu_);
  return current_;
}

HistoryMark EtcdCore::mark() const {
  MutexLock lock(&mu_);
  return seen_;
}

CoordinationHealth EtcdCore::health() const {
  MutexLock lock(&mu_);
  CoordinationHealth health = health_;
  health.revision = seen_.revision;
  health.cluster = seen_.cluster;
  health.endpoint = endpoints_[current_].address;
  return health;
}

bool EtcdCore::IsOlder(const HistoryMark& mark, const etcdpb::ResponseHeader& header) const {
  if (seen_.cluster == 0) return false;
  if (header.cluster_id() != seen_.cluster) return true;
  // What was asked before the history changed proves nothing about the present one.
  if (mark.history != seen_.history) return false;
  return header.revision() < mark.revision || header.raft_term() < mark.raft_term;
}

void EtcdCore::Answered(size_t endpoint, const HistoryMark& mark, const etcdpb::ResponseHeader& header) {
  bool lost = false;
  {
    MutexLock lock(&mu_);
    health_.answered_steady_ns = options_.clock->SteadyNs();
    if (endpoint == current_) {
      failures_in_row_ = 0;
      health_.up = true;
      health_.fault.clear();
    }
    lost = IsOlder(mark, header);
    if (lost) {
      ++health_.histories_lost;
      seen_ = {seen_.history + 1, 0, 0, 0};
    }
    seen_.cluster = header.cluster_id();
    seen_.raft_term = std::max(seen_.raft_term, header.raft_term());
    seen_.revision = std::max(seen_.revision, header.revision());
  }
  if (lost) Dispatch(history_lost_);
}

void EtcdCore::Saw(uint64_t history, Revision revision) {
  MutexLock lock(&mu_);
  if (history == seen_.history) seen_.revision = std::max(seen_.revision, revision);
}

size_t EtcdCore::NextEndpoint() const {
  for (size_t step = 1; step < endpoints_.size(); ++step) {
    const size_t at = (current_ + step) % endpoints_.size();
    if (endpoints_[at].channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) return at;
  }
  return (current_ + 1) % endpoints_.size();
}

void EtcdCore::Failed(size_t endpoint, const grpc::Status& status) {
  if (!IsUnanswered(status) || status.error_code() == grpc::StatusCode::CANCELLED) return;
  MutexLock lock(&mu_);
  if (stopping_ || endpoint != current_) return;
  ++failures_in_row_;
  health_.fault = endpoints_[endpoint].address + ": " + status.error_message();
  if (failures_in_row_ >= endpoints_.size()) health_.up = false;
  if (endpoints_.size() == 1) return;  // streams go on if it comes to itself
  current_ = NextEndpoint();
  ++health_.failovers;
  for (auto& [id, call] : running_) {
    if (call.endpoint == endpoint) CancelCall(&call);
  }
}

void EtcdCore::KeepaliveFailed() {
  MutexLock lock(&mu_);
  ++health_.keepalive_failures;
}

uint64_t EtcdCore::Begin(grpc::ClientContext* context, size_t endpoint, int64_t deadline_ms) {
  if (deadline_ms > 0) {
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(deadline_ms));
  }
  MutexLock lock(&mu_);
  if (stopping_) return 0;
  const uint64_t id = next_call_++;
  running_[id] = {context, endpoint};
  return id;
}

void EtcdCore::Started(uint64_t call) {
  MutexLock lock(&mu_);
  const auto found = running_.find(call);
  if (found != running_.end() && found->second.cancelled) found->second.context->TryCancel();
}

void EtcdCore::End(uint64_t call) {
  MutexLock lock(&mu_);
  running_.erase(call);
  ended_.SignalAll();
}

void EtcdCore::Cancel(uint64_t call) {
  MutexLock lock(&mu_);
  const auto found = running_.find(call);
  if (found != running_.end()) CancelCall(&found->second);
}

void EtcdCore::Dispatch(std::function<void()> task) {
  dispatcher_.Submit([this, task = std::move(task)] {
    if (!stopping()) task();
  });
}

void EtcdCore::After(int64_t ms, std::function<void()> task) {
  options_.timers->At(options_.clock->SteadyNs() + ms * 1'000'000,
                      [weak = weak_from_this(), task = std::move(task)] {
                        if (const auto self = weak.lock(); self != nullptr && !self->stopping()) {
                          self->Dispatch(task);
                        }
                      });
}

void EtcdCore::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (auto& [id, call] : running_) CancelCall(&call);
    while (!running_.empty()) ended_.Wait(&mu_);
  }
  dispatcher_.Stop();
}

bool EtcdCore::stopping() const {
  MutexLock lock(&mu_);
  return stopping_;
}

}  // namespace epic
