// What follows the method in the first line of a request. Pure functions.
#ifndef EPIC_COMMON_HTTP_TARGET_H_
#define EPIC_COMMON_HTTP_TARGET_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace epic {

// Splits a request target (origin, absolute or asterisk form) into path and query; the fragment is dropped.
// Errors: InvalidArgument when it is none of these forms.
struct Target {
  std::string path, query;
};
absl::StatusOr<Target> SplitTarget(std::string_view target);

}  // namespace epic

#endif  // EPIC_COMMON_HTTP_TARGET_H_
