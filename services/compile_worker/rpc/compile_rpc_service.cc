#include "services/compile_worker/rpc/compile_rpc_service.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic {
namespace {

// One call that waits for a compile. gRPC holds it until it is done with it, the compiler until it answers.
class CompileCall final : public grpc::ServerUnaryReactor, public std::enable_shared_from_this<CompileCall> {
 public:
  CompileCall(const RpcParts* parts, grpc::CallbackServerContext* context, Compiler* compiler,
              v1::CompileContextResponse* response)
      : call_(parts, context, "compile"), compiler_(compiler), response_(response) {}

  void HoldForGrpc() {
    MutexLock lock(&mu_);
    grpc_hold_ = shared_from_this();
  }
  void Begin(CompileJob job) {
    const auto ticket = compiler_->Ensure(
        std::move(job),
        [self = shared_from_this()](absl::StatusOr<CompileOutcome> outcome) { self->End(outcome); });
    if (!ticket.ok()) return End(ticket.status());
    {
      MutexLock lock(&mu_);
      ticket_ = *ticket;
      if (!cancelled_) return;
    }
    compiler_->Abandon(*ticket);
  }
  void End(const absl::StatusOr<CompileOutcome>& outcome) {
    if (outcome.ok()) {
      const Digest& build = outcome->object->build();
      response_->set_build(std::string(build.bytes.begin(), build.bytes.end()));
      *response_->mutable_layout() = ToProto(outcome->object->layout());
      response_->set_computed_for_caller(outcome->computed_for_caller);
    }
    Finish(call_.SetOutcome(outcome.status()));
  }

  void OnCancel() override {
    call_.Cancel(/*by_client=*/true);
    CompileTicket ticket = 0;
    {
      MutexLock lock(&mu_);
      cancelled_ = true;
      ticket = ticket_;
    }
    if (ticket != 0) compiler_->Abandon(ticket);
  }
  void OnDone() override {
    call_.Report();
    std::shared_ptr<CompileCall> last;  // outlives the lock: it may free the call and its mutex
    MutexLock lock(&mu_);
    last = std::move(grpc_hold_);
  }

 private:
  RpcCall call_;  // synchronises itself
  Compiler* const compiler_;
  v1::CompileContextResponse* const response_;  // gRPC's, until Finish

  Mutex mu_;
  CompileTicket ticket_ ABSL_GUARDED_BY(mu_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<CompileCall> grpc_hold_ ABSL_GUARDED_BY(mu_);
};

absl::Status Refuse(std::string_view what, std::string_view field) {
  return Error(ErrorCode::kInvalidRequest, what, field);
}

}  // namespace

absl::StatusOr<CompileJob> CompileRpcService::JobOf(const v1::CompileContextRequest& request) const {
  EPIC_ASSIGN_OR_RETURN(const std::vector<ObjectKey> keys, KeysFromProto(request.key()));
  if (keys.size() != 1) return Refuse("name one object", "key");
  CompileJob job;
  job.tenant = request.tenant();
  job.key = keys.front();
  job.tokens.assign(request.tokens().begin(), request.tokens().end());
  job.prefix_tokens.assign(request.prefix_tokens().begin(), request.prefix_tokens().end());
  job.sets_state = request.sets_state();
  EPIC_RETURN_IF_ERROR(check_(job));
  return job;
}

grpc::ServerUnaryReactor* CompileRpcService::Compile(grpc::CallbackServerContext* context,
                                                     const v1::CompileContextRequest* request,
                                                     v1::CompileContextResponse* response) {
  auto call = std::make_shared<CompileCall>(parts_, context, compiler_, response);
  call->HoldForGrpc();
  absl::StatusOr<CompileJob> job = JobOf(*request);
  if (job.ok()) {
    call->Begin(*std::move(job));
  } else {
    call->End(job.status());
  }
  return call.get();
}

grpc::ServerUnaryReactor* CompileRpcService::Forget(grpc::CallbackServerContext* context,
                                                    const v1::ForgetContextRequest* request,
                                                    v1::ForgetContextResponse* response) {
  return AnswerNow(parts_, context, "forget", response,
                   [&](const RequestScope&) -> absl::StatusOr<v1::ForgetContextResponse> {
                     if (request->id().size() != kCacheIdBytes) return Refuse("an id has 20 bytes", "id");
                     compiler_->Forget(request->tenant(), CacheIdFromBytes(request->id()));
                     return v1::ForgetContextResponse();
                   });
}

}  // namespace epic
