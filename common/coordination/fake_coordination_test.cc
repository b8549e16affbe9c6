#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/coordination/testing/coordinator_contract.h"
#include "common/coordination/testing/fake_coordination.h"
#include "common/testing/manual_timers.h"

namespace epic::testing {
namespace {

constexpr int64_t kAmpleMs = 60'000;

class FakeWorld final : public CoordinationWorld {
 public:
  Coordinator* NewCoordinator() override { return NewFake(); }
  FakeCoordinator* NewFake() {
    coordinators_.push_back(std::make_unique<FakeCoordinator>(&server_));
    return coordinators_.back().get();
  }
  bool Await(const std::function<bool()>& condition) override {
    for (int64_t ms = 0; ms < kAmpleMs && !condition(); ms += 10) timers_.AdvanceMs(10);
    return condition();
  }
  void Compact(Revision) override { server_.Compact(); }
  int64_t LeaseMs() const override { return 2000; }

  FakeCoordinationServer& server() { return server_; }
  ManualTimers& timers() { return timers_; }

 private:
  ManualClock clock_;
  ManualTimers timers_{&clock_};
  FakeCoordinationServer server_{&timers_, &clock_};
  std::vector<std::unique_ptr<FakeCoordinator>> coordinators_;
};

INSTANTIATE_TEST_SUITE_P(Fake, CoordinatorContractTest,
                         ::testing::Values([] { return std::make_unique<FakeWorld>(); }));

class FakeCoordinationTest : public ::testing::Test {
 protected:
  absl::StatusOr<TransactionResult> Put(std::string_view key, LeaseId lease = 0) {
    Gathered<absl::StatusOr<TransactionResult>> answers;
    one_->Commit({{}, {Change::Put(key, "x", lease)}}, answers.adder());
    EXPECT_TRUE(world_.Await([&] { return answers.size() > 0; }));
    return answers.all()[0];
  }
  Lease Grant() {
    Gathered<absl::StatusOr<Lease>> answers;
    one_->GrantLease(2000, states_.adder(), answers.adder());
    EXPECT_TRUE(world_.Await([&] { return answers.size() > 0; }));
    return *answers.all()[0];
  }

  FakeWorld world_;
  FakeCoordinator* one_ = world_.NewFake();
  FakeCoordinator* two_ = world_.NewFake();
  Gathered<LeaseState> states_;
};

TEST_F(FakeCoordinationTest, NobodyAnswersWhileItIsDownAndWatchesGoOnAfterwards) {
  ASSERT_OK_AND_ASSIGN(const TransactionResult put, Put("a"));
  Watched watched;
  ASSERT_OK(two_->Watch(KeyRange::Prefix(""), put.revision + 1, watched.listener()));
  world_.server().SetDown(true);
  EXPECT_THAT(Put("b"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(one_->health().up);
  EXPECT_NE(one_->health().fault, "");
  world_.server().SetDown(false);
  EXPECT_OK(Put("b"));
  EXPECT_TRUE(world_.Await([&] { return watched.changes().size() == 1; }));
}

TEST_F(FakeCoordinationTest, OneThatIsCutOffIsToldItsLeaseIsUncertainBeforeOthersSeeItEnd) {
  const Lease lease = Grant();
  ASSERT_OK_AND_ASSIGN(const TransactionResult put, Put("a", lease.id));
  Watched watched;
  ASSERT_OK(two_->Watch(KeyRange::Prefix(""), put.revision + 1, watched.listener()));
  one_->SetCutOff(true);
  ASSERT_TRUE(world_.Await([&] { return states_.size() > 0; }));
  EXPECT_EQ(states_.all()[0], LeaseState::kUncertain);
  EXPECT_EQ(watched.changes().size(), 0u);
  ASSERT_TRUE(world_.Await([&] { return watched.changes().size() == 1; }));
  EXPECT_FALSE(watched.changes()[0].is_put);
  one_->SetCutOff(false);
  ASSERT_TRUE(world_.Await([&] { return states_.size() == 2; }));
  EXPECT_EQ(states_.all()[1], LeaseState::kLost);
  EXPECT_GT(one_->health().keepalive_failures, 0u);
}

TEST_F(FakeCoordinationTest, LeasesOutliveAStopOfTheWholeStore) {
  const Lease lease = Grant();
  ASSERT_OK(Put("a", lease.id));
  world_.server().SetDown(true);
  world_.timers().AdvanceMs(60'000);
  world_.server().SetDown(false);
  ASSERT_TRUE(world_.Await([&] { return states_.size() == 2; }));
  EXPECT_THAT(states_.all(), ::testing::ElementsAre(LeaseState::kUncertain, LeaseState::kHeld));
  EXPECT_EQ(world_.server().Items().size(), 1u);
}

TEST_F(FakeCoordinationTest, ARestoreFromABackupIsToldToWatchesAndEndsLeasesOfAfterIt) {
  ASSERT_OK(Put("old"));
  const auto backup = world_.server().Backup();
  const Lease lease = Grant();
  ASSERT_OK_AND_ASSIGN(const TransactionResult put, Put("new", lease.id));
  Watched watched;
  ASSERT_OK(two_->Watch(KeyRange::Prefix(""), put.revision + 1, watched.listener()));
  world_.server().Restore(backup, /*new_cluster=*/true);
  ASSERT_TRUE(world_.Await([&] { return watched.end().has_value(); }));
  EXPECT_EQ(watched.end(), WatchUpdate::Kind::kHistoryChanged);
  EXPECT_EQ(two_->health().histories_lost, 1u);
  EXPECT_LT(two_->health().revision, put.revision);
  EXPECT_EQ(two_->health().cluster, 2u);
  ASSERT_TRUE(world_.Await([&] { return states_.size() == 1; }));
  EXPECT_EQ(states_.all()[0], LeaseState::kLost);
  EXPECT_EQ(world_.server().Items().size(), 1u);
}

TEST_F(FakeCoordinationTest, SlowAnswersAreLateOrAtLastNone) {
  world_.server().SetDelayMs(500);
  Gathered<absl::StatusOr<Listing>> late;
  one_->List(KeyRange::One("a"), 0, late.adder());
  world_.timers().AdvanceMs(499);
  EXPECT_EQ(late.size(), 0u);
  world_.timers().AdvanceMs(1);
  EXPECT_EQ(late.size(), 1u);
  world_.server().SetDelayMs(60'000);
  EXPECT_THAT(Put("a"), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(FakeCoordinationTest, ALostAnswerIsOfACommitThatWasApplied) {
  world_.server().LoseAnswers(1);
  EXPECT_THAT(Put("a"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(world_.server().Items().size(), 1u);
  EXPECT_OK(Put("b"));
}

}  // namespace
}  // namespace epic::testing
