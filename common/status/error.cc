#include "common/status/error.h"

#include <array>

#include "absl/strings/cord.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"

namespace epic {
namespace {

using Absl = absl::StatusCode;

constexpr std::string_view kInvalid = "invalid_request_error";
constexpr std::string_view kAuthentication = "authentication_error";
constexpr std::string_view kPermission = "permission_error";
constexpr std::string_view kNotFound = "not_found_error";
constexpr std::string_view kRateLimit = "rate_limit_error";
constexpr std::string_view kServer = "server_error";

constexpr std::array kTable = {
    ErrorInfo{ErrorCode::kInvalidRequest, "invalid_request", kInvalid, 400, Absl::kInvalidArgument, false},
    ErrorInfo{ErrorCode::kUnsupportedParameter, "unsupported_parameter", kInvalid, 400,
              Absl::kInvalidArgument, false},
    ErrorInfo{ErrorCode::kContextLengthExceeded, "context_length_exceeded", kInvalid, 400,
              Absl::kInvalidArgument, false},
    ErrorInfo{ErrorCode::kTemplateRefused, "template_refused", kInvalid, 400, Absl::kInvalidArgument, false},
    ErrorInfo{ErrorCode::kContextFailed, "context_failed", kInvalid, 400, Absl::kInvalidArgument, false},
    ErrorInfo{ErrorCode::kInvalidApiKey, "invalid_api_key", kAuthentication, 401, Absl::kUnauthenticated,
              false},
    ErrorInfo{ErrorCode::kPermissionDenied, "permission_denied", kPermission, 403, Absl::kPermissionDenied,
              false},
    ErrorInfo{ErrorCode::kRouteNotFound, "route_not_found", kNotFound, 404, Absl::kNotFound, false},
    ErrorInfo{ErrorCode::kModelNotFound, "model_not_found", kNotFound, 404, Absl::kNotFound, false},
    ErrorInfo{ErrorCode::kContextNotFound, "context_not_found", kNotFound, 404, Absl::kNotFound, false},
    ErrorInfo{ErrorCode::kContextExpired, "context_expired", kNotFound, 404, Absl::kNotFound, false},
    ErrorInfo{ErrorCode::kContextDeleted, "context_deleted", kNotFound, 404, Absl::kNotFound, false},
    ErrorInfo{ErrorCode::kContextObjectMissing, "context_object_missing", kNotFound, 404, Absl::kNotFound,
              false},
    ErrorInfo{ErrorCode::kMethodNotAllowed, "method_not_allowed", kInvalid, 405, Absl::kUnimplemented, false},
    ErrorInfo{ErrorCode::kRequestTimeout, "request_timeout", kInvalid, 408, Absl::kDeadlineExceeded, true},
    ErrorInfo{ErrorCode::kBodyTooLarge, "body_too_large", kInvalid, 413, Absl::kOutOfRange, false},
    ErrorInfo{ErrorCode::kHeaderTooLarge, "header_too_large", kInvalid, 431, Absl::kOutOfRange, false},
    ErrorInfo{ErrorCode::kUnsupportedMediaType, "unsupported_media_type", kInvalid, 415,
              Absl::kInvalidArgument, false},
    ErrorInfo{ErrorCode::kContextModelMismatch, "context_model_mismatch", kInvalid, 409,
              Absl::kFailedPrecondition, false},
    ErrorInfo{ErrorCode::kNameInUse, "name_in_use", kInvalid, 409, Absl::kFailedPrecondition, false},
    ErrorInfo{ErrorCode::kRateLimitExceeded, "rate_limit_exceeded", kRateLimit, 429, Absl::kResourceExhausted,
              true},
    ErrorInfo{ErrorCode::kQueueFull, "queue_full", kRateLimit, 429, Absl::kResourceExhausted, true},
    ErrorInfo{ErrorCode::kInsufficientQuota, "insufficient_quota", kRateLimit, 429, Absl::kResourceExhausted,
              false},
    ErrorInfo{ErrorCode::kClientGone, "client_gone", kInvalid, 499, Absl::kCancelled, false},
    ErrorInfo{ErrorCode::kInternal, "internal_error", kServer, 500, Absl::kInternal, true},
    ErrorInfo{ErrorCode::kLoading, "loading", kServer, 503, Absl::kUnavailable, true},
    ErrorInfo{ErrorCode::kDraining, "draining", kServer, 503, Absl::kUnavailable, true},
    ErrorInfo{ErrorCode::kContextCompiling, "context_compiling", kServer, 503, Absl::kUnavailable, true},
    ErrorInfo{ErrorCode::kInsufficientReplicas, "insufficient_replicas", kServer, 503, Absl::kUnavailable,
              true},
    ErrorInfo{ErrorCode::kCoordinationUnavailable, "coordination_unavailable", kServer, 503,
              Absl::kUnavailable, true},
    ErrorInfo{ErrorCode::kDeadline, "deadline_exceeded", kServer, 504, Absl::kDeadlineExceeded, true},
    ErrorInfo{ErrorCode::kStorageFull, "storage_full", kServer, 507, Absl::kResourceExhausted, false},
    ErrorInfo{ErrorCode::kReservationConflict, "reservation_conflict", kInvalid, 409,
              Absl::kFailedPrecondition, false},
    ErrorInfo{ErrorCode::kReservationEnded, "reservation_ended", kInvalid, 409, Absl::kAborted, false},
    ErrorInfo{ErrorCode::kLeaseEnded, "lease_ended", kInvalid, 409, Absl::kAborted, false},
    ErrorInfo{ErrorCode::kLayerDamaged, "layer_damaged", kInvalid, 409, Absl::kDataLoss, true},
};

constexpr bool TableIsInEnumOrder() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].code) != i) return false;
  }
  return kTable.size() == static_cast<size_t>(ErrorCode::kLayerDamaged) + 1;
}
static_assert(TableIsInEnumOrder());

constexpr char kCodeUrl[] = "epic.v1/code";
constexpr char kParamUrl[] = "epic.v1/param";
constexpr char kRetryUrl[] = "epic.v1/retry_after_ms";
constexpr char kFinalUrl[] = "epic.v1/final";

}  // namespace

std::span<const ErrorInfo> ErrorTable() { return kTable; }

const ErrorInfo& InfoOf(ErrorCode code) {
  EPIC_CHECK(static_cast<size_t>(code) < kTable.size());
  return kTable[static_cast<size_t>(code)];
}

absl::Status Error(ErrorCode code, std::string_view message, std::string_view param) {
  const ErrorInfo& info = InfoOf(code);
  absl::Status status(info.status_code, ToAbsl(message));
  status.SetPayload(kCodeUrl, absl::Cord(ToAbsl(info.name)));
  if (!param.empty()) status.SetPayload(kParamUrl, absl::Cord(ToAbsl(param)));
  return status;
}

absl::Status FinalError(ErrorCode code, std::string_view message) {
  absl::Status status = Error(code, message);
  status.SetPayload(kFinalUrl, absl::Cord());
  return status;
}

bool MayRetry(const absl::Status& status) {
  return InfoOf(CodeOf(status)).retryable && !status.GetPayload(kFinalUrl).has_value();
}

absl::Status RetryLater(ErrorCode code, std::string_view message, int64_t retry_after_ms) {
  absl::Status status = Error(code, message);
  status.SetPayload(kRetryUrl, absl::Cord(std::to_string(retry_after_ms)));
  return status;
}

ErrorCode CodeOf(const absl::Status& status) {
  EPIC_CHECK(!status.ok());
  if (const auto payload = status.GetPayload(kCodeUrl); payload.has_value()) {
    for (const ErrorInfo& info : kTable) {
      if (*payload == ToAbsl(info.name)) return info.code;
    }
  }
  switch (status.code()) {
    case Absl::kCancelled:
      return ErrorCode::kClientGone;
    case Absl::kDeadlineExceeded:
      return ErrorCode::kDeadline;
    case Absl::kInvalidArgument:
      return ErrorCode::kInvalidRequest;
    default:
      return ErrorCode::kInternal;
  }
}

std::string ParamOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kParamUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

std::optional<int64_t> RetryAfterMsOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryUrl);
  if (!payload.has_value()) return std::nullopt;
  return std::stoll(std::string(*payload));
}

bool IsUnexpected(const absl::Status& status) {
  return CodeOf(status) == ErrorCode::kInternal && !status.GetPayload(kCodeUrl).has_value();
}

std::string PublicMessageOf(const absl::Status& status) {
  if (IsUnexpected(status))
    return "an unexpected error on the server; its log has the cause under this request's id";
  return MessageOf(status);
}

std::string MessageOf(const absl::Status& status) { return std::string(ToStd(status.message())); }

}  // namespace epic
