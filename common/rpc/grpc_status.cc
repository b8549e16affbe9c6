#include "common/rpc/grpc_status.h"

#include <charconv>
#include <optional>
#include <string>

#include "common/base/absl_std.h"
#include "common/status/context_place.h"
#include "common/status/error.h"
#include "epic/v1/error_details.pb.h"
#include "epic/v1/rpc_status.pb.h"

namespace epic {
namespace {

constexpr char kDomain[] = "epic.v1";
constexpr char kParam[] = "param";
constexpr char kRetryAfter[] = "retry_after_ms";

std::optional<ErrorCode> CodeByName(const std::string& name) {
  for (const ErrorInfo& info : ErrorTable()) {
    if (info.name == name) return info.code;
  }
  return std::nullopt;
}

std::optional<google::rpc::ErrorInfo> DetailOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& any : details.details()) {
    google::rpc::ErrorInfo info;
    if (any.UnpackTo(&info) && info.domain() == kDomain) return info;
  }
  return std::nullopt;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const ErrorInfo& info = InfoOf(CodeOf(status));
  google::rpc::ErrorInfo detail;
  detail.set_reason(std::string(info.name));
  detail.set_domain(kDomain);
  if (const std::string param = ParamOf(status); !param.empty()) (*detail.mutable_metadata())[kParam] = param;
  if (const auto retry = RetryAfterMsOf(status); retry.has_value()) {
    (*detail.mutable_metadata())[kRetryAfter] = std::to_string(*retry);
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(info.status_code));
  details.set_message(PublicMessageOf(status));
  details.add_details()->PackFrom(detail);
  return {static_cast<grpc::StatusCode>(info.status_code), PublicMessageOf(status),
          details.SerializeAsString()};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto detail = DetailOf(status);
  const auto code = detail.has_value() ? CodeByName(detail->reason()) : std::nullopt;
  if (!code.has_value()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), ToAbsl(status.error_message()));
  }
  const auto& metadata = detail->metadata();
  const auto found = metadata.find(kParam);
  const std::string param = found == metadata.end() ? std::string() : found->second;
  if (const auto retry = metadata.find(kRetryAfter); retry != metadata.end()) {
    int64_t ms = 0;
    const std::string& text = retry->second;
    if (std::from_chars(text.data(), text.data() + text.size(), ms).ec == std::errc()) {
      return AtPlace(RetryLater(*code, status.error_message(), ms), param);
    }
  }
  return Error(*code, status.error_message(), param);
}

}  // namespace epic
