#include "common/coordination/coordination_metrics.h"

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(CoordinationMetricsTest, ShowsMembersByKindAndState) {
  MemberView view;
  Member member;
  member.node.kind = NodeKind::kLinkWorker;
  member.node.state = NodeState::kServing;
  view.members = {member, member};
  view.members[1].suspected = true;
  view.members[1].confirmed = false;
  Metrics metrics;
  ShowMembers(view, &metrics);
  EXPECT_EQ(metrics.GetGauge(MetricId::kMembers, {"link_worker", "serving"}).Value(), 2);
  EXPECT_EQ(metrics.GetGauge(MetricId::kMembers, {"router", "joining"}).Value(), 0);
  EXPECT_EQ(metrics.GetGauge(MetricId::kMembersSuspected).Value(), 1);
  EXPECT_EQ(metrics.GetGauge(MetricId::kMembersKept).Value(), 1);
  ShowMembers({}, &metrics);
  EXPECT_EQ(metrics.GetGauge(MetricId::kMembers, {"link_worker", "serving"}).Value(), 0);
}

TEST(CoordinationMetricsTest, ShowsWhatTheCoordinatorKnows) {
  CoordinationHealth health;
  health.up = true;
  health.revision = 17;
  health.keepalive_failures = 3;
  health.failovers = 2;
  health.histories_lost = 1;
  Metrics metrics;
  ShowCoordination(health, &metrics);
  EXPECT_EQ(metrics.GetGauge(MetricId::kCoordinationUp).Value(), 1);
  EXPECT_EQ(metrics.GetGauge(MetricId::kCoordinationRevision).Value(), 17);
  EXPECT_EQ(metrics.GetCounter(MetricId::kCoordinationKeepaliveFailuresTotal).Value(), 3u);
  EXPECT_EQ(metrics.GetCounter(MetricId::kCoordinationFailoversTotal).Value(), 2u);
  EXPECT_EQ(metrics.GetCounter(MetricId::kCoordinationHistoriesLostTotal).Value(), 1u);
}

}  // namespace
}  // namespace epic
