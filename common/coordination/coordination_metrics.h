// The gauges and counters of coordination and membership, set from their state. For a collector of Metrics
// (common/metrics/metrics.h): one collector, any thread. Free functions.
#ifndef EPIC_COMMON_COORDINATION_COORDINATION_METRICS_H_
#define EPIC_COMMON_COORDINATION_COORDINATION_METRICS_H_

#include "common/coordination/coordinator.h"
#include "common/coordination/membership.h"
#include "common/metrics/metrics.h"

namespace epic {

void ShowCoordination(const CoordinationHealth& health, Metrics* metrics);
void ShowMembers(const MemberView& view, Metrics* metrics);

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_COORDINATION_METRICS_H_
