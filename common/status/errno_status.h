// The one place that turns an errno into a status of ours. Free functions; thread-safe.
#ifndef EPIC_COMMON_STATUS_ERRNO_STATUS_H_
#define EPIC_COMMON_STATUS_ERRNO_STATUS_H_

#include <string_view>

#include "absl/status/status.h"

namespace epic {

// `error` is an errno, above 0. No space (of the disk or of a quota) becomes ResourceExhausted with
// kStorageFull, no such file NotFound, no right to PermissionDenied, a call that the system does not know
// Unimplemented, a wrong call Internal (our own mistake), all other failures Unavailable (may pass). `what`
// says what was tried, for the message.
absl::Status FromErrno(int error, std::string_view what);

}  // namespace epic

#endif  // EPIC_COMMON_STATUS_ERRNO_STATUS_H_
