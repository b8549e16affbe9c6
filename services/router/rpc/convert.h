// Between proto and the plain structs of services/router/core/api.h. Pure; decides nothing but what proto
// cannot say (an absent oneof). Enums that this version does not know are refused, never taken as the
// default.
#ifndef EPIC_SERVICES_ROUTER_RPC_CONVERT_H_
#define EPIC_SERVICES_ROUTER_RPC_CONVERT_H_

#include "absl/status/statusor.h"
#include "epic/v1/chat.pb.h"
#include "epic/v1/contexts.pb.h"
#include "epic/v1/models.pb.h"
#include "services/router/core/api.h"

namespace epic {

// Errors of all: kInvalidRequest with the field's name as param.
absl::StatusOr<CreateContextRequest> FromProto(const v1::CreateContextRequest& proto);
absl::StatusOr<ListContextsRequest> FromProto(const v1::ListContextsRequest& proto);
absl::StatusOr<PatchContextRequest> FromProto(const v1::UpdateContextRequest& proto);
absl::StatusOr<ChatRequest> FromProto(const v1::ChatRequest& proto);
absl::StatusOr<std::vector<ChatMessage>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::ChatMessage>& proto);

v1::Context ToProto(const ContextRecord& record);
v1::CreateContextResponse ToProto(const CreateContextResult& result);
v1::ListContextsResponse ToProto(const ContextPage& page);
v1::Model ToProto(const ModelInfo& model);
v1::ChatEvent ToProto(const ChatStart& start);
v1::ChatEvent ToProto(const ChatDelta& delta);
v1::ChatEvent DoneEvent(const ChatUsage& usage, const ChatTimings& timings);

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_RPC_CONVERT_H_
