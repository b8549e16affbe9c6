#include "services/router/rpc/context_service.h"

#include <utility>

#include "common/status/status_macros.h"
#include "services/router/rpc/convert.h"

namespace epic {

grpc::ServerUnaryReactor* ContextRpcService::Create(grpc::CallbackServerContext* context,
                                                    const v1::CreateContextRequest* request,
                                                    v1::CreateContextResponse* response) {
  auto* call = new UnaryCall(parts_, context, "create_context");  // frees itself
  absl::StatusOr<CreateContextRequest> parsed = FromProto(*request);
  if (!parsed.ok()) {
    call->End(parsed.status());
    return call;
  }
  contexts_->Create(call->scope(), std::move(parsed).value(),
                    [call, response](absl::StatusOr<CreateContextResult> result) {
                      if (result.ok()) *response = ToProto(*result);
                      call->End(result.status());
                    });
  return call;
}

grpc::ServerUnaryReactor* ContextRpcService::Get(grpc::CallbackServerContext* context,
                                                 const v1::GetContextRequest* request,
                                                 v1::Context* response) {
  return Answer(parts_, context, "get_context", response,
                [this, request](const RequestScope& scope) -> absl::StatusOr<v1::Context> {
                  EPIC_ASSIGN_OR_RETURN(ContextRecord record, contexts_->Get(scope, request->id()));
                  return ToProto(record);
                });
}

grpc::ServerUnaryReactor* ContextRpcService::List(grpc::CallbackServerContext* context,
                                                  const v1::ListContextsRequest* request,
                                                  v1::ListContextsResponse* response) {
  return Answer(parts_, context, "list_contexts", response,
                [this, request](const RequestScope& scope) -> absl::StatusOr<v1::ListContextsResponse> {
                  EPIC_ASSIGN_OR_RETURN(ListContextsRequest parsed, FromProto(*request));
                  EPIC_ASSIGN_OR_RETURN(ContextPage page, contexts_->List(scope, parsed));
                  return ToProto(page);
                });
}

grpc::ServerUnaryReactor* ContextRpcService::Update(grpc::CallbackServerContext* context,
                                                    const v1::UpdateContextRequest* request,
                                                    v1::Context* response) {
  return Answer(parts_, context, "patch_context", response,
                [this, request](const RequestScope& scope) -> absl::StatusOr<v1::Context> {
                  EPIC_ASSIGN_OR_RETURN(PatchContextRequest patch, FromProto(*request));
                  EPIC_ASSIGN_OR_RETURN(ContextRecord record, contexts_->Patch(scope, request->id(), patch));
                  return ToProto(record);
                });
}

grpc::ServerUnaryReactor* ContextRpcService::Delete(grpc::CallbackServerContext* context,
                                                    const v1::DeleteContextRequest* request,
                                                    v1::DeleteContextResponse* response) {
  if (request->erase() != v1::ERASE_MODE_UNSPECIFIED) return Erase(context, request, response);
  return Answer(parts_, context, "delete_context", response,
                [this, request](const RequestScope& scope) -> absl::StatusOr<v1::DeleteContextResponse> {
                  EPIC_RETURN_IF_ERROR(contexts_->Delete(scope, request->id()));
                  v1::DeleteContextResponse answer;
                  answer.set_id(request->id());
                  answer.set_deleted(true);
                  return answer;
                });
}

grpc::ServerUnaryReactor* ContextRpcService::Erase(grpc::CallbackServerContext* context,
                                                   const v1::DeleteContextRequest* request,
                                                   v1::DeleteContextResponse* response) {
  return AnswerLater(
      parts_, context, "delete_context", response, [this, request](const RequestScope& scope, auto done) {
        if (request->erase() != v1::ERASE_MODE_WAIT) {
          return done(Error(ErrorCode::kInvalidRequest, "erase can only be WAIT", "erase"));
        }
        contexts_->Erase(scope, request->id(),
                         [done, request](const absl::StatusOr<std::vector<std::string>>& pending) {
                           if (!pending.ok()) return done(pending.status());
                           v1::DeleteContextResponse answer;
                           answer.set_id(request->id());
                           answer.set_deleted(true);
                           for (const std::string& node : *pending) answer.add_pending(node);
                           done(std::move(answer));
                         });
      });
}

}  // namespace epic
