// The one list of error codes that users see, and how an absl::Status carries one.
//
// Core code returns Error(ErrorCode::kX, "what to do", "param"); the doors (HTTP, gRPC) turn the status into
// their answer through this table and nowhere else. A status without a code of ours maps by its absl code:
// kCancelled to kClientGone, kDeadlineExceeded to kDeadline, kInvalidArgument to kInvalidRequest, all else to
// kInternal.
#ifndef EPIC_COMMON_STATUS_ERROR_H_
#define EPIC_COMMON_STATUS_ERROR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace epic {

enum class ErrorCode : uint8_t {
  kInvalidRequest,         // malformed or out of range
  kUnsupportedParameter,   // known to OpenAI's interface, not to us
  kContextLengthExceeded,  // the message has both numbers
  kTemplateRefused,        // the chat template raised an exception
  kContextFailed,          // the context cannot be compiled
  kInvalidApiKey,
  kPermissionDenied,
  kRouteNotFound,
  kModelNotFound,
  kContextNotFound,
  kContextExpired,
  kContextDeleted,
  kContextObjectMissing,  // with on_missing: error
  kMethodNotAllowed,
  kRequestTimeout,  // the client did not send its request in time
  kBodyTooLarge,
  kHeaderTooLarge,
  kUnsupportedMediaType,
  kContextModelMismatch,
  kNameInUse,
  kRateLimitExceeded,
  kQueueFull,
  kInsufficientQuota,
  kClientGone,  // 499, in the log only
  kInternal,
  kLoading,
  kDraining,
  kContextCompiling,  // still compiling at the deadline
  kInsufficientReplicas,
  kCoordinationUnavailable,  // the store that the parts of a cluster share does not answer
  kDeadline,
  kStorageFull,
  // Of a store node to those who write and read objects there.
  kReservationConflict,  // a layer is missing, being filled, or of other checksums: the token is still good
  kReservationEnded,     // the token is good no more: reserve again
  kLeaseEnded,           // acquire again
  kLayerDamaged,         // its bytes did not arrive as they were sent: send the layer again
};

struct ErrorInfo {
  ErrorCode code;
  std::string_view name;  // the `code` field of the error body and ErrorInfo.reason of gRPC
  std::string_view type;  // the `type` field of the error body
  int http_status;
  absl::StatusCode status_code;  // of the absl::Status and of gRPC
  bool retryable;  // false on a status that clients re-send by default asks for x-should-retry: false
};

// Every code once, in the order of the enum.
std::span<const ErrorInfo> ErrorTable();
const ErrorInfo& InfoOf(ErrorCode code);

// A status that carries `code`. `message` says what to do; `param` names the field at fault, if one is.
absl::Status Error(ErrorCode code, std::string_view message, std::string_view param = {});

// The same for a fault that sending the request again cannot mend, whatever the table says of the code.
absl::Status FinalError(ErrorCode code, std::string_view message);

// The same with an advice when to try again, for Retry-After.
absl::Status RetryLater(ErrorCode code, std::string_view message, int64_t retry_after_ms);

// The code that a status carries, or the mapping described above. REQUIRES: !status.ok().
ErrorCode CodeOf(const absl::Status& status);
// The field at fault; empty when none is named.
std::string ParamOf(const absl::Status& status);
std::optional<int64_t> RetryAfterMsOf(const absl::Status& status);
// Whether sending the request again may help: what the table says, but for a FinalError. REQUIRES:
// !status.ok().
bool MayRetry(const absl::Status& status);
// The message as a std string, for our own log.
std::string MessageOf(const absl::Status& status);
// True for a status that no code of ours made and that maps to kInternal: its text was not written for
// clients and may name paths of this machine. REQUIRES: !status.ok().
bool IsUnexpected(const absl::Status& status);
// The message that a client may read: the status's own, or a fixed one where IsUnexpected. The door logs the
// original beside the request id. REQUIRES: !status.ok().
std::string PublicMessageOf(const absl::Status& status);

}  // namespace epic

#endif  // EPIC_COMMON_STATUS_ERROR_H_
