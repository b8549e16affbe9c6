#include "common/transport/ucx/ucx_status.h"

#include <string>

#include "common/base/absl_std.h"
#include "common/base/check.h"

namespace epic::transport {

absl::Status FromUcx(ucs_status_t status, std::string_view what) {
  EPIC_CHECK(status != UCS_INPROGRESS);
  if (status == UCS_OK) return absl::OkStatus();
  const std::string message = std::string(what) + ": " + ucs_status_string(status);
  switch (status) {
    case UCS_ERR_CANCELED:
      return absl::CancelledError(ToAbsl(message));
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return absl::ResourceExhaustedError(ToAbsl(message));
    case UCS_ERR_NOT_IMPLEMENTED:
    case UCS_ERR_UNSUPPORTED:
      return absl::UnimplementedError(ToAbsl(message));
    case UCS_ERR_MESSAGE_TRUNCATED:
      return absl::DataLossError(ToAbsl(message));
    case UCS_ERR_NO_ELEM:
      return absl::NotFoundError(ToAbsl(message));
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
    case UCS_ERR_BUFFER_TOO_SMALL:
    case UCS_ERR_ALREADY_EXISTS:
    case UCS_ERR_OUT_OF_RANGE:
      return absl::InternalError(ToAbsl(message));
    default:
      return absl::UnavailableError(ToAbsl(message));
  }
}

}  // namespace epic::transport
