// What a process is told of the coordination of its cluster. A value; who reads the configuration fills it.
#ifndef EPIC_COMMON_COORDINATION_COORDINATION_SETTINGS_H_
#define EPIC_COMMON_COORDINATION_COORDINATION_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace epic {

struct CoordinationSettings {
  std::vector<std::string> endpoints;  // HOST:PORT of the members of etcd
  // Of all keys of this cluster; another cluster on the same etcd has another one. Ends with a slash.
  std::string prefix = "epic/";
  // Until a node that is dead and was not seen to die is gone. 2 s to 60 s.
  int64_t lease_ms = 5'000;
  // For how long the last known state is as good as any when etcd is away; then health says degraded, and
  // serving goes on. 1 s to a day.
  int64_t stale_ms = 300'000;
  // For how long members that etcd lost are kept, where it cannot be trusted with that (member_table.h). At
  // least two leases, at most an hour.
  int64_t grace_ms = 15'000;
};

// Errors: InvalidArgument that names everything that is wrong, one a line.
absl::Status ValidateCoordination(const CoordinationSettings& settings);

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_COORDINATION_SETTINGS_H_
