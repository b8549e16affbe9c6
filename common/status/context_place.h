// Errors about one context, told by the place where a request names it. A store or a worker knows the context
// and not the request; who knows both adds the place. Free function, any thread.
#ifndef EPIC_COMMON_STATUS_CONTEXT_PLACE_H_
#define EPIC_COMMON_STATUS_CONTEXT_PLACE_H_

#include <string_view>

#include "absl/status/status.h"

namespace epic {

// `status` with `place`, such as context_ids[0], as the field at fault, if it is an error about one context
// (not found, expired, deleted, failed, …) and a place is given; else unchanged.
absl::Status AtPlace(const absl::Status& status, std::string_view place);

}  // namespace epic

#endif  // EPIC_COMMON_STATUS_CONTEXT_PLACE_H_
