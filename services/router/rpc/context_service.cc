#include "services/router/rpc/context_service.h"

#include <memory>
#include <utility>

#include "common/rpc/grpc_status.h"
#include "common/status/status_macros.h"
#include "services/router/rpc/call_scope.h"
#include "services/router/rpc/convert.h"

namespace epic {
namespace {

// Answers at once with what `call` returned.
template <typename Response, typename Call>
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Response* response, Call call) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<Response> result = call();
  if (result.ok()) *response = std::move(result).value();
  reactor->Finish(ToGrpcStatus(result.status()));
  return reactor;
}

// A create that waits: lives until gRPC is done with it, and cancels the wait when the client goes.
class CreateReactor final : public grpc::ServerUnaryReactor {
 public:
  CancelToken token() const { return cancel_.token(); }
  void OnCancel() override { cancel_.Cancel(); }
  void OnDone() override { delete this; }

 private:
  CancelSource cancel_;
};

}  // namespace

grpc::ServerUnaryReactor* ContextRpcService::Create(grpc::CallbackServerContext* context,
                                                    const v1::CreateContextRequest* request,
                                                    v1::CreateContextResponse* response) {
  auto* reactor = new CreateReactor;  // deletes itself in OnDone
  absl::StatusOr<CreateContextRequest> parsed = FromProto(*request);
  if (!parsed.ok()) {
    reactor->Finish(ToGrpcStatus(parsed.status()));
    return reactor;
  }
  contexts_->Create(MakeScope(context, *clock_, reactor->token()), std::move(parsed).value(),
                    [reactor, response](absl::StatusOr<CreateContextResult> result) {
                      if (result.ok()) *response = ToProto(*result);
                      reactor->Finish(ToGrpcStatus(result.status()));
                    });
  return reactor;
}

grpc::ServerUnaryReactor* ContextRpcService::Get(grpc::CallbackServerContext* context,
                                                 const v1::GetContextRequest* request,
                                                 v1::Context* response) {
  return Answer(context, response, [&]() -> absl::StatusOr<v1::Context> {
    EPIC_ASSIGN_OR_RETURN(ContextRecord record,
                          contexts_->Get(MakeScope(context, *clock_, {}), request->id()));
    return ToProto(record);
  });
}

grpc::ServerUnaryReactor* ContextRpcService::List(grpc::CallbackServerContext* context,
                                                  const v1::ListContextsRequest* request,
                                                  v1::ListContextsResponse* response) {
  return Answer(context, response, [&]() -> absl::StatusOr<v1::ListContextsResponse> {
    EPIC_ASSIGN_OR_RETURN(ListContextsRequest parsed, FromProto(*request));
    EPIC_ASSIGN_OR_RETURN(ContextPage page, contexts_->List(MakeScope(context, *clock_, {}), parsed));
    return ToProto(page);
  });
}

grpc::ServerUnaryReactor* ContextRpcService::Update(grpc::CallbackServerContext* context,
                                                    const v1::UpdateContextRequest* request,
                                                    v1::Context* response) {
  return Answer(context, response, [&]() -> absl::StatusOr<v1::Context> {
    EPIC_ASSIGN_OR_RETURN(PatchContextRequest patch, FromProto(*request));
    EPIC_ASSIGN_OR_RETURN(ContextRecord record,
                          contexts_->Patch(MakeScope(context, *clock_, {}), request->id(), patch));
    return ToProto(record);
  });
}

grpc::ServerUnaryReactor* ContextRpcService::Delete(grpc::CallbackServerContext* context,
                                                    const v1::DeleteContextRequest* request,
                                                    v1::DeleteContextResponse* response) {
  return Answer(context, response, [&]() -> absl::StatusOr<v1::DeleteContextResponse> {
    EPIC_RETURN_IF_ERROR(contexts_->Delete(MakeScope(context, *clock_, {}), request->id()));
    v1::DeleteContextResponse answer;
    answer.set_id(request->id());
    answer.set_deleted(true);
    return answer;
  });
}

}  // namespace epic
