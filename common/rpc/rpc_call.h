// One call of a gRPC door, from its arrival until gRPC is done with it: scope, cancellation, outcome, report.
//
// A service makes one per call and hands it to gRPC, which ends it. Handlers run on gRPC's threads, of which
// there are as few as two, and streams are written by the same ones: so what may block runs on the executor
// of the door, in a queue of bounded length. Thread-safe.
#ifndef EPIC_COMMON_RPC_RPC_CALL_H_
#define EPIC_COMMON_RPC_RPC_CALL_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <optional>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/base/request_ids.h"
#include "common/base/request_scope.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/rpc_event.h"
#include "common/status/error.h"

namespace epic {

// What the services of one door share. Outlives them.
struct RpcParts {
  const Clock* clock = nullptr;
  Executor* executor = nullptr;  // for what may block
  RequestIds* request_ids = nullptr;
  RpcObserver observer;
  grpc::Status (*to_grpc)(const absl::Status& status) = &ToGrpcStatus;
};

class RpcCall {
 public:
  // `name` outlives the call.
  RpcCall(const RpcParts* parts, grpc::CallbackServerContext* context, std::string_view name);

  const RequestScope& scope() const { return scope_; }
  // Ends the work for the call. `by_client`: gRPC says that the client went or its deadline is over.
  void Cancel(bool by_client) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes how the call ends and returns what to hand to gRPC; the last one counts.
  grpc::Status SetOutcome(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Once, when gRPC is done with the call.
  void Report() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const RpcParts* const parts_;
  const std::string_view name_;
  CancelSource cancel_;  // synchronises itself
  const RequestScope scope_;

  Mutex mu_;
  std::optional<ErrorCode> outcome_ ABSL_GUARDED_BY(mu_);  // nullopt: ok
  std::string cause_ ABSL_GUARDED_BY(mu_);                 // of an unexpected error
  bool cancelled_by_client_ ABSL_GUARDED_BY(mu_) = false;
};

// A call with one answer. Frees itself when gRPC is done with it.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(const RpcParts* parts, grpc::CallbackServerContext* context, std::string_view name)
      : call_(parts, context, name) {}

  const RequestScope& scope() const { return call_.scope(); }
  // Once. The call may be gone when it returns.
  void End(const absl::Status& status);

  void OnCancel() override { call_.Cancel(/*by_client=*/true); }
  void OnDone() override {
    call_.Report();
    delete this;
  }

 private:
  RpcCall call_;
};

// The answer when the door has no room for one more call that may block.
absl::Status DoorIsFull();

// Answers with what `work(scope, done)` hands to `done`, an absl::StatusOr<Response>, once and on any thread;
// it runs on the executor and may block.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* AnswerLater(const RpcParts* parts, grpc::CallbackServerContext* context,
                                      std::string_view name, Response* response, Work work) {
  auto* call = new UnaryCall(parts, context, name);  // frees itself
  const bool taken = parts->executor->TrySubmit([call, response, work = std::move(work)] {
    if (call->scope().cancel.cancelled()) {
      return call->End(Error(ErrorCode::kClientGone, "the client went away"));
    }
    work(call->scope(), [call, response](absl::StatusOr<Response> result) {
      if (result.ok()) *response = std::move(result).value();
      call->End(result.status());
    });
  });
  if (!taken) call->End(DoorIsFull());
  return call;
}

// The same with what `work(scope)` returns.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* Answer(const RpcParts* parts, grpc::CallbackServerContext* context,
                                 std::string_view name, Response* response, Work work) {
  return AnswerLater(
      parts, context, name, response,
      [work = std::move(work)](const RequestScope& scope, const auto& done) { done(work(scope)); });
}

// The same on the thread of gRPC, for work that never blocks.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* AnswerNow(const RpcParts* parts, grpc::CallbackServerContext* context,
                                    std::string_view name, Response* response, Work work) {
  auto* call = new UnaryCall(parts, context, name);  // frees itself
  absl::StatusOr<Response> result = work(call->scope());
  if (result.ok()) *response = std::move(result).value();
  call->End(result.status());
  return call;
}

}  // namespace epic

#endif  // EPIC_COMMON_RPC_RPC_CALL_H_
