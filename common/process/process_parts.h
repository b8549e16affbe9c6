// What every process that serves does the same way, whatever reads its flags: errors of doors, the log. Free
// functions.
#ifndef EPIC_COMMON_PROCESS_PROCESS_PARTS_H_
#define EPIC_COMMON_PROCESS_PROCESS_PARTS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/log/log.h"

namespace epic {

// `door` with the flag in front of its error, so that one sees which door it is about.
template <typename T>
absl::StatusOr<T> NamedDoor(std::string_view flag, absl::StatusOr<T> door) {
  if (door.ok()) return door;
  return absl::Status(door.status().code(), std::string(flag) + ": " + std::string(door.status().message()));
}

LogOptions LogOptionsOf(const Config& config);

}  // namespace epic

#endif  // EPIC_COMMON_PROCESS_PROCESS_PARTS_H_
