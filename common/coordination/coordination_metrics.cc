#include "common/coordination/coordination_metrics.h"

#include <array>
#include <cstddef>

namespace epic {

void ShowCoordination(const CoordinationHealth& health, Metrics* metrics) {
  metrics->GetGauge(MetricId::kCoordinationUp).Set(health.up ? 1 : 0);
  metrics->GetGauge(MetricId::kCoordinationRevision).Set(static_cast<double>(health.revision));
  metrics->GetCounter(MetricId::kCoordinationKeepaliveFailuresTotal).CatchUp(health.keepalive_failures);
  metrics->GetCounter(MetricId::kCoordinationFailoversTotal).CatchUp(health.failovers);
  metrics->GetCounter(MetricId::kCoordinationHistoriesLostTotal).CatchUp(health.histories_lost);
}

void ShowMembers(const MemberView& view, Metrics* metrics) {
  std::array<std::array<size_t, kNodeStates>, kNodeKinds> counts{};
  size_t suspected = 0;
  size_t kept = 0;
  for (const Member& member : view.members) {
    ++counts.at(static_cast<size_t>(member.node.kind)).at(static_cast<size_t>(member.node.state));
    suspected += member.suspected ? 1 : 0;
    kept += member.confirmed ? 0 : 1;
  }
  for (size_t kind = 0; kind < kNodeKinds; ++kind) {
    for (size_t state = 0; state < kNodeStates; ++state) {
      metrics
          ->GetGauge(MetricId::kMembers,
                     {NameOf(static_cast<NodeKind>(kind)), NameOf(static_cast<NodeState>(state))})
          .Set(static_cast<double>(counts.at(kind).at(state)));
    }
  }
  metrics->GetGauge(MetricId::kMembersSuspected).Set(static_cast<double>(suspected));
  metrics->GetGauge(MetricId::kMembersKept).Set(static_cast<double>(kept));
}

}  // namespace epic
