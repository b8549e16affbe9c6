#include "services/kv_store/replication/rpc/replica_status.h"

#include <optional>
#include <string>

#include "common/rpc/kv_store/item_status.h"
#include "common/status/error.h"
#include "epic/v1/rpc_status.pb.h"

namespace epic::kv_store {
namespace {

constexpr uint32_t kMaxCode = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);
constexpr char kUnexpected[] = "the store node did not do it; its log says why";

// What the other node said, if it did.
std::optional<absl::Status> SaidOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : details.details()) {
    v1::ItemStatus item;
    if (!any.UnpackTo(&item)) continue;
    absl::StatusOr<absl::Status> said = StatusFromProto(item);
    if (said.ok() && !said->ok()) return *std::move(said);
  }
  return std::nullopt;
}

}  // namespace

v1::ItemStatus StatusToProto(const absl::Status& status) {
  v1::ItemStatus proto;
  if (status.ok()) return proto;
  proto.set_grpc_code(static_cast<uint32_t>(status.code()));
  if (IsUnexpected(status)) {
    proto.set_message(kUnexpected);
    return proto;
  }
  // A code of ours is there, or is what the status is mapped to: the same to whoever asks for it.
  proto.set_code(std::string(InfoOf(CodeOf(status)).name));
  proto.set_message(MessageOf(status));
  proto.set_param(ParamOf(status));
  if (const auto retry = RetryAfterMsOf(status); retry.has_value()) proto.set_retry_after_ms(*retry);
  return proto;
}

absl::StatusOr<absl::Status> StatusFromProto(const v1::ItemStatus& proto) {
  if (proto.grpc_code() > kMaxCode) {
    return Error(ErrorCode::kInvalidRequest, "a code that this version does not know", "error");
  }
  return epic::FromProto(proto);
}

grpc::Status ToReplicaGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const v1::ItemStatus item = StatusToProto(status);
  google::rpc::Status details;
  details.set_code(static_cast<int>(item.grpc_code()));
  details.set_message(item.message());
  details.add_details()->PackFrom(item);
  return {static_cast<grpc::StatusCode>(item.grpc_code()), item.message(), details.SerializeAsString()};
}

absl::Status FromReplicaGrpcStatus(const grpc::Status& status) {
  if (std::optional<absl::Status> said = SaidOf(status); said.has_value()) return *std::move(said);
  return absl::UnavailableError("a store node cannot be reached: " + status.error_message());
}

}  // namespace epic::kv_store
