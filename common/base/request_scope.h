// Who asks, since when, until when, and whether they are still there. Made by a door for each request; a
// plain value.
#ifndef EPIC_COMMON_BASE_REQUEST_SCOPE_H_
#define EPIC_COMMON_BASE_REQUEST_SCOPE_H_

#include <cstdint>
#include <string>

#include "common/base/cancel.h"

namespace epic {

struct RequestScope {
  std::string request_id;
  std::string tenant = "default";
  CancelToken cancel;
  int64_t received_steady_ns = 0;
  int64_t deadline_steady_ns = 0;  // 0: none
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_REQUEST_SCOPE_H_
