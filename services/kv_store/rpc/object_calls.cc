// The calls of KvStoreRpcService that concern objects and have one answer; streams are in layer_streams.cc.
#include <string>
#include <utility>
#include <vector>

#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/rpc/kv_store/record_convert.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "services/kv_store/rpc/kv_store_service.h"
#include "services/kv_store/rpc/node_convert.h"

namespace epic::kv_store {
namespace {

absl::StatusOr<std::vector<ObjectName>> NamesOf(const std::string& tenant, const v1::ObjectKeys& proto) {
  EPIC_ASSIGN_OR_RETURN(std::vector<ObjectKey> keys, KeysFromProto(proto));
  std::vector<ObjectName> names;
  names.reserve(keys.size());
  for (ObjectKey& key : keys) names.push_back({tenant, std::move(key)});
  return names;
}

template <typename Item>
absl::StatusOr<std::vector<Item>> ItemsOf(const std::string& tenant, const v1::ObjectKeys& proto) {
  EPIC_ASSIGN_OR_RETURN(std::vector<ObjectKey> keys, KeysFromProto(proto));
  EPIC_ASSIGN_OR_RETURN(const std::vector<KvLayout> layouts, LayoutsFromProto(proto));
  std::vector<Item> items(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    items[i].tenant = tenant;
    items[i].key = std::move(keys[i]);
    items[i].layout = layouts[i];
  }
  return items;
}

absl::StatusOr<std::vector<Digest>> BuildsOf(const std::string& bytes, size_t count) {
  EPIC_ASSIGN_OR_RETURN(const auto pieces, PiecesOf(bytes, sizeof(Digest::bytes), "builds"));
  if (pieces.size() != count) {
    return Error(ErrorCode::kInvalidRequest, "each token has one build of 32 bytes", "builds");
  }
  std::vector<Digest> builds;
  for (const std::string_view piece : pieces) {
    EPIC_ASSIGN_OR_RETURN(builds.emplace_back(), DigestFromProto(std::string(piece), "builds"));
  }
  return builds;
}

uint32_t BitsOf(const ObjectTiers& tiers) { return (tiers.in_memory ? 1u : 0u) | (tiers.on_disk ? 2u : 0u); }

}  // namespace

grpc::ServerUnaryReactor* KvStoreRpcService::Reserve(grpc::CallbackServerContext* context,
                                                     const v1::ReserveObjectsRequest* request,
                                                     v1::ReserveObjectsResponse* response) {
  return Answer(disk_parts_, context, "reserve", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::ReserveObjectsResponse> {
                  EPIC_ASSIGN_OR_RETURN(auto items, ItemsOf<ReserveItem>(request->tenant(), request->keys()));
                  EPIC_ASSIGN_OR_RETURN(const auto requests, RequestIdsOf(request->requests(), items.size()));
                  for (size_t i = 0; i < items.size(); ++i) {
                    items[i].source = request->source();
                    items[i].request = requests[i];
                  }
                  v1::ReserveObjectsResponse answer;
                  answer.set_incarnation(node_->incarnation());
                  for (const ReserveResult& result : node_->Reserve(request->peer(), items)) {
                    SetItem(result, answer.add_items());
                    if (result.heartbeat_ms > 0) answer.set_heartbeat_ms(result.heartbeat_ms);
                  }
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Heartbeat(grpc::CallbackServerContext* context,
                                                       const v1::HeartbeatRequest* request,
                                                       v1::HeartbeatResponse* response) {
  return AnswerNow(parts_, context, "heartbeat", response,
                   [this, request](const RequestScope&) -> absl::StatusOr<v1::HeartbeatResponse> {
                     EPIC_ASSIGN_OR_RETURN(const auto tokens, TokensOf(request->tokens()));
                     v1::HeartbeatResponse answer;
                     answer.set_incarnation(node_->incarnation());
                     for (const TokenState state : node_->Heartbeat(tokens)) {
                       answer.add_states(ToProto(state));
                     }
                     return answer;
                   });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Commit(grpc::CallbackServerContext* context,
                                                    const v1::CommitObjectsRequest* request,
                                                    v1::CommitObjectsResponse* response) {
  return Answer(disk_parts_, context, "commit", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::CommitObjectsResponse> {
                  EPIC_ASSIGN_OR_RETURN(const auto tokens, TokensOf(request->tokens()));
                  EPIC_ASSIGN_OR_RETURN(const auto builds, BuildsOf(request->builds(), tokens.size()));
                  v1::CommitObjectsResponse answer;
                  for (size_t i = 0; i < tokens.size(); ++i) {
                    SetItem(node_->Commit(tokens[i], builds[i]), answer.add_items());
                  }
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Abort(grpc::CallbackServerContext* context,
                                                   const v1::AbortRequest* request,
                                                   v1::AbortResponse* response) {
  return Answer(disk_parts_, context, "abort", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::AbortResponse> {
                  EPIC_ASSIGN_OR_RETURN(const auto tokens, TokensOf(request->tokens()));
                  v1::AbortResponse answer;
                  for (const TokenState state : node_->Abort(tokens)) answer.add_states(ToProto(state));
                  return answer;
                });
}

const RpcParts* KvStoreRpcService::PartsFor(const v1::AcquireObjectsRequest& request) const {
  const auto names = NamesOf(request.tenant(), request.keys());
  if (!names.ok()) return parts_;
  for (const ObjectTiers& tiers : node_->Exists(*names)) {
    if (tiers.on_disk && !tiers.in_memory) return disk_parts_;
  }
  return parts_;
}

grpc::ServerUnaryReactor* KvStoreRpcService::Acquire(grpc::CallbackServerContext* context,
                                                     const v1::AcquireObjectsRequest* request,
                                                     v1::AcquireObjectsResponse* response) {
  return Answer(PartsFor(*request), context, "acquire", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::AcquireObjectsResponse> {
                  EPIC_ASSIGN_OR_RETURN(const auto items,
                                        ItemsOf<AcquireItem>(request->tenant(), request->keys()));
                  v1::AcquireObjectsResponse answer;
                  answer.set_incarnation(node_->incarnation());
                  for (const LeaseResult& result :
                       node_->Acquire(request->peer(), items, request->duration_ms(), request->streaming())) {
                    SetItem(result, request->with_checksums(), answer.add_items());
                    if (result.duration_ms > 0) answer.set_duration_ms(result.duration_ms);
                    if (on_lookup_ && result.outcome != AcquireOutcome::kFailed) {
                      on_lookup_(result.object != nullptr, result.cause);
                    }
                  }
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Confirm(grpc::CallbackServerContext* context,
                                                     const v1::ConfirmRequest* request,
                                                     v1::LeaseStatesResponse* response) {
  return AnswerNow(parts_, context, "confirm", response,
                   [this, request](const RequestScope&) -> absl::StatusOr<v1::LeaseStatesResponse> {
                     EPIC_ASSIGN_OR_RETURN(const auto leases, LeasesOf(request->leases()));
                     return ToProto(node_->Confirm(request->peer(), leases, request->release()),
                                    node_->incarnation());
                   });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Renew(grpc::CallbackServerContext* context,
                                                   const v1::RenewRequest* request,
                                                   v1::LeaseStatesResponse* response) {
  return AnswerNow(parts_, context, "renew", response,
                   [this, request](const RequestScope&) -> absl::StatusOr<v1::LeaseStatesResponse> {
                     EPIC_ASSIGN_OR_RETURN(const auto leases, LeasesOf(request->leases()));
                     return ToProto(node_->Renew(request->peer(), leases, request->duration_ms()),
                                    node_->incarnation());
                   });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Release(grpc::CallbackServerContext* context,
                                                     const v1::ReleaseRequest* request,
                                                     v1::LeaseStatesResponse* response) {
  return AnswerNow(parts_, context, "release", response,
                   [this, request](const RequestScope&) -> absl::StatusOr<v1::LeaseStatesResponse> {
                     EPIC_ASSIGN_OR_RETURN(const auto leases, LeasesOf(request->leases()));
                     return ToProto(node_->Release(request->peer(), leases), node_->incarnation());
                   });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Exists(grpc::CallbackServerContext* context,
                                                    const v1::ExistsRequest* request,
                                                    v1::ExistsResponse* response) {
  return AnswerNow(parts_, context, "exists", response,
                   [this, request](const RequestScope&) -> absl::StatusOr<v1::ExistsResponse> {
                     EPIC_ASSIGN_OR_RETURN(const auto names, NamesOf(request->tenant(), request->keys()));
                     v1::ExistsResponse answer;
                     answer.set_incarnation(node_->incarnation());
                     answer.mutable_tiers()->Reserve(static_cast<int>(names.size()));
                     for (const ObjectTiers& tiers : node_->Exists(names)) answer.add_tiers(BitsOf(tiers));
                     return answer;
                   });
}

grpc::ServerUnaryReactor* KvStoreRpcService::Drop(grpc::CallbackServerContext* context,
                                                  const v1::DropObjectsRequest* request,
                                                  v1::DropObjectsResponse* response) {
  return Answer(disk_parts_, context, "drop", response,
                [this, request](const RequestScope&) -> absl::StatusOr<v1::DropObjectsResponse> {
                  EPIC_ASSIGN_OR_RETURN(const auto names, NamesOf(request->tenant(), request->keys()));
                  v1::DropObjectsResponse answer;
                  for (const absl::Status& status : node_->Drop(names)) {
                    *answer.add_items() = epic::ToProto(status);
                  }
                  return answer;
                });
}

grpc::ServerUnaryReactor* KvStoreRpcService::IssueLaneTicket(grpc::CallbackServerContext* context,
                                                             const v1::LaneTicketRequest*,
                                                             v1::LaneTicketResponse* response) {
  return AnswerNow(parts_, context, "issue_lane_ticket", response,
                   [this](const RequestScope&) -> absl::StatusOr<v1::LaneTicketResponse> {
                     if (!issue_lane_ticket_) {
                       return Error(ErrorCode::kMethodNotAllowed, "this node serves nothing over UCX");
                     }
                     EPIC_ASSIGN_OR_RETURN(std::string ticket, issue_lane_ticket_());
                     v1::LaneTicketResponse answer;
                     answer.set_ticket(std::move(ticket));
                     return answer;
                   });
}

}  // namespace epic::kv_store
