#include "common/status/errno_status.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "common/base/absl_std.h"
#include "common/status/error.h"

namespace epic {

absl::Status FromErrno(int error, std::string_view what) {
  const std::string message = std::string(what) + ": " + std::generic_category().message(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return Error(ErrorCode::kStorageFull, message + "; free space or delete contexts");
    case ENOENT:
      return absl::NotFoundError(ToAbsl(message));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(ToAbsl(message));
    case ENOSYS:
    case EOPNOTSUPP:
      return absl::UnimplementedError(ToAbsl(message));
    case EINVAL:
    case EBADF:
    case EFAULT:
      return absl::InternalError(ToAbsl(message));
    default:
      return absl::UnavailableError(ToAbsl(message));
  }
}

}  // namespace epic
