#include "common/rpc/rpc_call.h"

#include "common/rpc/call_scope.h"

namespace epic {
namespace {

constexpr int64_t kDeadlineSlackNs = 10'000'000;

}  // namespace

RpcCall::RpcCall(const RpcParts* parts, grpc::CallbackServerContext* context, std::string_view name)
    : parts_(parts),
      name_(name),
      scope_(MakeScope(context, *parts->clock, parts->request_ids, cancel_.token())) {}

void RpcCall::Cancel(bool by_client) {
  cancel_.Cancel();
  if (!by_client) return;
  MutexLock lock(&mu_);
  cancelled_by_client_ = true;
}

grpc::Status RpcCall::SetOutcome(const absl::Status& status) {
  MutexLock lock(&mu_);
  outcome_ = status.ok() ? std::nullopt : std::optional<ErrorCode>(CodeOf(status));
  cause_ = !status.ok() && IsUnexpected(status) ? MessageOf(status) : std::string();
  return parts_->to_grpc(status);
}

void RpcCall::Report() {
  if (!parts_->observer) return;
  const int64_t now_ns = parts_->clock->SteadyNs();
  std::optional<ErrorCode> outcome;
  RpcEvent event;
  {
    MutexLock lock(&mu_);
    outcome = outcome_;
    event.cause = cause_;
    // gRPC calls a call off alike when the client is gone and when the deadline is over.
    if (cancelled_by_client_ && (!outcome.has_value() || outcome == ErrorCode::kClientGone)) {
      // The client's own timer may fire a little before ours: a deadline travels as a time left, rounded up.
      const int64_t early_ns =
          kDeadlineSlackNs + (scope_.deadline_steady_ns - scope_.received_steady_ns) / 50;
      const bool late = scope_.deadline_steady_ns != 0 && now_ns >= scope_.deadline_steady_ns - early_ns;
      outcome = late ? ErrorCode::kDeadline : ErrorCode::kClientGone;
    }
  }
  event.call = name_;
  if (outcome.has_value()) event.code = InfoOf(*outcome).name;
  event.request_id = scope_.request_id;
  event.duration_us = (now_ns - scope_.received_steady_ns) / 1000;
  parts_->observer(event);
}

void UnaryCall::End(const absl::Status& status) { Finish(call_.SetOutcome(status)); }

absl::Status DoorIsFull() {
  return RetryLater(ErrorCode::kQueueFull, "too many requests wait: try again later", 1000);
}

}  // namespace epic
