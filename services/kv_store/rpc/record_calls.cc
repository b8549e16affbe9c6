// The calls of KvStoreRpcService that concern records.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/kv_store/record_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/erase_wait.h"
#include "services/kv_store/rpc/kv_store_service.h"

namespace epic::kv_store {
namespace {

constexpr int kMaxItems = 1024;
constexpr int64_t kMaxEraseNs = int64_t{600} * 1'000'000'000;
constexpr int64_t kAnswerNs = 100'000'000;  // that an answer needs to arrive in time

// When an erasure is no longer waited for.
int64_t EndOfWait(const RequestScope& scope) {
  const int64_t end_ns = scope.received_steady_ns + kMaxEraseNs;
  if (scope.deadline_steady_ns == 0) return end_ns;
  const int64_t margin_ns = std::min(kAnswerNs, (scope.deadline_steady_ns - scope.received_steady_ns) / 4);
  return std::min(end_ns, scope.deadline_steady_ns - margin_ns);
}

absl::Status CheckItems(int count) {
  if (count <= kMaxItems) return absl::OkStatus();
  return Error(ErrorCode::kInvalidRequest,
               "at most " + std::to_string(kMaxItems) + " items go in one call: split it", "ids");
}

}  // namespace

grpc::ServerUnaryReactor* KvStoreRpcService::CreateContext(grpc::CallbackServerContext* context,
                                                           const v1::StoreCreateContextRequest* request,
                                                           v1::StoreCreateContextResponse* response) {
  return Answer(disk_parts_, context, "create_context", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoreCreateContextResponse> {
                  EPIC_ASSIGN_OR_RETURN(const NewContext created, FromProto(*request));
                  EPIC_ASSIGN_OR_RETURN(const CreateResult result, store_->CreateContext(created));
                  v1::StoreCreateContextResponse answer;
                  *answer.mutable_context() = ToProto(result.record);
                  answer.set_created(result.created);
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::GetContexts(grpc::CallbackServerContext* context,
                                                         const v1::StoreGetContextsRequest* request,
                                                         v1::StoreGetContextsResponse* response) {
  return Answer(parts_, context, "get_contexts", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoreGetContextsResponse> {
                  EPIC_RETURN_IF_ERROR(CheckItems(request->ids_size()));
                  v1::StoreGetContextsResponse answer;
                  for (const std::string& text : request->ids()) {
                    const auto id = CacheIdFromProto(text, "ids");
                    const auto record = id.ok() ? store_->GetContext(request->tenant(), *id) : id.status();
                    auto* item = answer.add_items();
                    if (record.ok()) *item->mutable_context() = ToProto(*record);
                    if (!record.ok()) *item->mutable_error() = ToProto(record.status());
                  }
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::FindByName(grpc::CallbackServerContext* context,
                                                        const v1::StoreFindByNameRequest* request,
                                                        v1::StoredContext* response) {
  return Answer(parts_, context, "find_by_name", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoredContext> {
                  EPIC_ASSIGN_OR_RETURN(const Digest model,
                                        DigestFromProto(request->model_identity(), "model_identity"));
                  EPIC_ASSIGN_OR_RETURN(const ContextRecord record,
                                        store_->FindByName(request->tenant(), model, request->name()));
                  return ToProto(record);
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::GetTokens(grpc::CallbackServerContext* context,
                                                       const v1::StoreGetTokensRequest* request,
                                                       v1::StoreGetTokensResponse* response) {
  return Answer(disk_parts_, context, "get_tokens", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoreGetTokensResponse> {
                  EPIC_ASSIGN_OR_RETURN(const CacheId id, CacheIdFromProto(request->id(), "id"));
                  EPIC_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                                        store_->GetTokens(request->tenant(), id));
                  v1::StoreGetTokensResponse answer;
                  answer.mutable_tokens()->Assign(tokens.begin(), tokens.end());
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::ListContexts(grpc::CallbackServerContext* context,
                                                          const v1::StoreListContextsRequest* request,
                                                          v1::StoreListContextsResponse* response) {
  return Answer(parts_, context, "list_contexts", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoreListContextsResponse> {
                  EPIC_ASSIGN_OR_RETURN(const ContextQuery query, FromProto(*request));
                  EPIC_ASSIGN_OR_RETURN(const ContextPage page,
                                        store_->ListContexts(request->tenant(), query));
                  v1::StoreListContextsResponse answer;
                  for (const ContextRecord& record : page.records) *answer.add_contexts() = ToProto(record);
                  answer.set_has_more(page.has_more);
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::UpdateContext(grpc::CallbackServerContext* context,
                                                           const v1::StoreUpdateContextRequest* request,
                                                           v1::StoredContext* response) {
  return Answer(disk_parts_, context, "update_context", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoredContext> {
                  EPIC_ASSIGN_OR_RETURN(const CacheId id, CacheIdFromProto(request->id(), "id"));
                  EPIC_ASSIGN_OR_RETURN(const ContextPatch patch, FromProto(*request));
                  EPIC_ASSIGN_OR_RETURN(const ContextRecord record,
                                        store_->UpdateContext(request->tenant(), id, patch));
                  return ToProto(record);
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::DeleteContext(grpc::CallbackServerContext* context,
                                                           const v1::StoreDeleteContextRequest* request,
                                                           v1::StoreDeleteContextResponse* response) {
  if (request->erase() != v1::ERASE_MODE_UNSPECIFIED) {
    return AnswerLater(disk_parts_, context, "erase_context", response,
                       [this, request](const RequestScope& scope, const auto& done) {
                         EraseContext(*request, scope, done);
                       });
  }
  return Answer(disk_parts_, context, "delete_context", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoreDeleteContextResponse> {
                  EPIC_ASSIGN_OR_RETURN(const CacheId id, CacheIdFromProto(request->id(), "id"));
                  EPIC_ASSIGN_OR_RETURN(const bool existed, store_->DeleteContext(request->tenant(), id));
                  v1::StoreDeleteContextResponse answer;
                  answer.set_existed(existed);
                  return answer;
                });
}

void KvStoreRpcService::EraseContext(
    const v1::StoreDeleteContextRequest& request, const RequestScope& scope,
    const std::function<void(absl::StatusOr<v1::StoreDeleteContextResponse>)>& done) {
  const auto id = CacheIdFromProto(request.id(), "id");
  if (!id.ok()) return done(id.status());
  if (request.erase() != v1::ERASE_MODE_WAIT) {
    return done(Error(ErrorCode::kInvalidRequest, "a mode that this node does not know", "erase"));
  }
  const auto wait = EraseWait::Make(streams_->timers, parts_->clock);
  const auto existed = store_->EraseContext(request.tenant(), *id, wait->Receiver());
  if (!existed.ok()) return done(existed.status());
  wait->Await(EndOfWait(scope), scope.cancel, [done, existed = *existed](std::vector<std::string> pending) {
    v1::StoreDeleteContextResponse answer;
    answer.set_existed(existed);
    for (std::string& node : pending) answer.add_pending(std::move(node));
    done(std::move(answer));
  });
}

grpc::ServerUnaryReactor* KvStoreRpcService::SetState(grpc::CallbackServerContext* context,
                                                      const v1::StoreSetStateRequest* request,
                                                      v1::StoreSetStateResponse* response) {
  return Answer(disk_parts_, context, "set_state", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoreSetStateResponse> {
                  EPIC_ASSIGN_OR_RETURN(const CacheId id, CacheIdFromProto(request->id(), "id"));
                  EPIC_ASSIGN_OR_RETURN(const ContextState state, FromProto(request->state()));
                  EPIC_RETURN_IF_ERROR(store_->SetState(request->tenant(), id, state, request->compile_ms(),
                                                        request->error()));
                  return v1::StoreSetStateResponse();
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Touch(grpc::CallbackServerContext* context,
                                                   const v1::StoreTouchRequest* request,
                                                   v1::StoreTouchResponse* response) {
  return Answer(parts_, context, "touch", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::StoreTouchResponse> {
                  EPIC_RETURN_IF_ERROR(CheckItems(request->ids_size()));
                  for (const std::string& text : request->ids()) {
                    EPIC_ASSIGN_OR_RETURN(const CacheId id, CacheIdFromProto(text, "ids"));
                    store_->Touch(request->tenant(), id);
                  }
                  return v1::StoreTouchResponse();
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Usage(grpc::CallbackServerContext* context,
                                                   const v1::StoreUsageRequest*,
                                                   v1::StoreUsageResponse* response) {
  return Answer(parts_, context, "usage", response,
                [this](const RequestScope&) -> absl::StatusOr<v1::StoreUsageResponse> {
                  return ToProto(store_->Usage(), store_->Disk(), parts_->clock->SteadyNs());
                });
}

}  // namespace epic::kv_store
