#include "common/rpc/kv_store/item_status.h"

#include <string>

#include "common/base/absl_std.h"
#include "common/rpc/grpc_status.h"
#include "common/status/context_place.h"
#include "common/status/error.h"

namespace epic {
namespace {

// Whether the disk of the store said so: no code of ours.
bool IsOfTheDisk(const absl::Status& status) {
  return (absl::IsUnavailable(status) || absl::IsDataLoss(status)) && IsUnexpected(status);
}

std::string DiskMessage(const absl::Status& status) {
  return absl::IsDataLoss(status) ? "the store's disk holds damaged bytes: look into its log"
                                  : "the store's disk does not work: try again later, or look into its log";
}

}  // namespace

v1::ItemStatus ToProto(const absl::Status& status) {
  v1::ItemStatus proto;
  if (status.ok()) return proto;
  if (IsOfTheDisk(status)) {
    proto.set_grpc_code(static_cast<uint32_t>(status.code()));
    proto.set_message(DiskMessage(status));
    return proto;
  }
  const ErrorInfo& info = InfoOf(CodeOf(status));
  proto.set_grpc_code(static_cast<uint32_t>(info.status_code));
  proto.set_code(std::string(info.name));
  proto.set_message(PublicMessageOf(status));
  proto.set_param(ParamOf(status));
  if (const auto retry = RetryAfterMsOf(status); retry.has_value()) proto.set_retry_after_ms(*retry);
  return proto;
}

absl::Status FromProto(const v1::ItemStatus& proto) {
  if (proto.grpc_code() == 0) return absl::OkStatus();
  for (const ErrorInfo& info : ErrorTable()) {
    if (info.name != proto.code()) continue;
    if (!proto.has_retry_after_ms()) return Error(info.code, proto.message(), proto.param());
    return AtPlace(RetryLater(info.code, proto.message(), proto.retry_after_ms()), proto.param());
  }
  return absl::Status(static_cast<absl::StatusCode>(proto.grpc_code()), ToAbsl(proto.message()));
}

grpc::Status ToStoreGrpcStatus(const absl::Status& status) {
  if (status.ok() || !IsOfTheDisk(status)) return ToGrpcStatus(status);
  return {static_cast<grpc::StatusCode>(status.code()), DiskMessage(status)};
}

}  // namespace epic
