#include "common/coordination/static_membership.h"

#include <gtest/gtest.h>

#include "common/coordination/testing/membership_world.h"
#include "common/testing/manual_timers.h"
#include "common/testing/status_matchers.h"

namespace epic::testing {
namespace {

class StaticMembershipTest : public ::testing::Test {
 protected:
  StaticMembership::Options Of(const std::vector<std::string>& ids, const std::string& self) {
    StaticMembership::Options options{&timers_, &clock_};
    for (const std::string& id : ids) {
      NodeInfo node;
      node.kind = NodeKind::kKvStore;
      node.id = id;
      options.nodes.push_back(node);
    }
    options.self = self;
    return options;
  }

  ManualClock clock_;
  ManualTimers timers_{&clock_};
};

TEST_F(StaticMembershipTest, EverybodyServesAndTheFirstOneLeads) {
  ASSERT_OK_AND_ASSIGN(const auto one, StaticMembership::Start(Of({"s2", "s1"}, "s2")));
  EXPECT_EQ(MembershipWorld::Shown(*one), "s1:0 s2:0");
  EXPECT_TRUE(one->view()->Find("s1")->serves());
  EXPECT_TRUE(one->leadership().view().leading);
  EXPECT_TRUE(one->health().causes.empty());
  ASSERT_OK_AND_ASSIGN(const auto other, StaticMembership::Start(Of({"s2", "s1"}, "s1")));
  EXPECT_FALSE(other->leadership().view().leading);
  EXPECT_EQ(other->leadership().view().leader, "s2");
}

TEST_F(StaticMembershipTest, SuspectsWhatWasReportedDownUntilItIsUpOrAWhileHasPassed) {
  ASSERT_OK_AND_ASSIGN(const auto membership, StaticMembership::Start(Of({"s1", "s2"}, "")));
  membership->ReportDown("s1", {3, 4}, "reset");
  EXPECT_EQ(MembershipWorld::Shown(*membership), "s1:0? s2:0");
  membership->ReportUp("s1", {3, 4});
  EXPECT_EQ(MembershipWorld::Shown(*membership), "s1:0 s2:0");
  membership->ReportDown("s2", {}, "reset");
  timers_.AdvanceMs(9'999);
  EXPECT_EQ(MembershipWorld::Shown(*membership), "s1:0 s2:0?");
  timers_.AdvanceMs(1);
  EXPECT_EQ(MembershipWorld::Shown(*membership), "s1:0 s2:0");
}

TEST_F(StaticMembershipTest, RefusesAListThatMakesNoSense) {
  EXPECT_THAT(StaticMembership::Start(Of({}, "")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StaticMembership::Start(Of({"a", "a"}, "")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StaticMembership::Start(Of({"a"}, "b")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(StaticMembership::Start(Of({"a/b"}, "")), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace epic::testing
