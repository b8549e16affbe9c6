#include "common/coordination/election.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/coordination/testing/calls.h"
#include "common/coordination/testing/fake_coordination.h"
#include "common/testing/manual_timers.h"
#include "common/testing/status_matchers.h"

namespace epic::testing {
namespace {

constexpr int64_t kLeaseMs = 5'000;

class ElectionTest : public ::testing::Test {
 protected:
  struct Candidate {
    std::unique_ptr<FakeCoordinator> coordinator;
    std::shared_ptr<Election> election;
    ~Candidate() {
      election->Stop();
      coordinator->Stop();
    }
  };
  std::unique_ptr<Candidate> Start(const std::string& id) {
    auto candidate = std::make_unique<Candidate>();
    candidate->coordinator = std::make_unique<FakeCoordinator>(&server_);
    Election::Options options{
        candidate->coordinator.get(), &timers_, &clock_, "leaders/repair/", id, kLeaseMs};
    options.listener = views_.adder();
    candidate->election = Election::Start(options);
    timers_.AdvanceMs(50);
    return candidate;
  }

  ManualClock clock_;
  ManualTimers timers_{&clock_};
  FakeCoordinationServer server_{&timers_, &clock_};
  Gathered<LeaderView> views_;
};

TEST_F(ElectionTest, TheFirstCandidateLeadsAndTheNextFollowsItWithAHigherFence) {
  const auto looker = Start("");
  EXPECT_EQ(looker->election->view(), LeaderView{});
  auto a = Start("a");
  const auto b = Start("b");
  const LeaderView first = a->election->view();
  EXPECT_TRUE(first.leading);
  EXPECT_EQ(looker->election->view().leader, "a");
  EXPECT_EQ(b->election->view().fence, first.fence);
  EXPECT_FALSE(b->election->view().leading);
  Gathered<absl::Status> resigned;
  a->election->Resign(resigned.adder());
  EXPECT_FALSE(a->election->view().leading);
  timers_.AdvanceMs(50);
  EXPECT_EQ(resigned.size(), 1u);
  EXPECT_TRUE(b->election->view().leading);
  EXPECT_GT(b->election->view().fence, first.fence);
  EXPECT_EQ(a->election->view().leader, "b");
  EXPECT_FALSE(views_.all().empty());
}

TEST_F(ElectionTest, WhatALeaderOfBeforeWritesIsRefused) {
  auto a = Start("a");
  const auto b = Start("b");
  const LeaderView before = a->election->view();
  Gathered<absl::StatusOr<TransactionResult>> results;
  const auto write = [&] {
    b->coordinator->Commit({{before.FenceGuard()}, {Change::Put("work", "x")}}, results.adder());
    timers_.AdvanceMs(10);
  };
  write();
  a->election->Resign([](const absl::Status&) {});
  timers_.AdvanceMs(50);
  write();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results.all()[0]->applied);
  EXPECT_FALSE(results.all()[1]->applied);
}

TEST_F(ElectionTest, ALeaderThatIsCutOffStepsBackBeforeAnotherLeads) {
  auto a = Start("a");
  const auto b = Start("b");
  a->coordinator->SetCutOff(true);
  for (int64_t ms = 0; ms < 4 * kLeaseMs && !b->election->view().leading; ms += 10) {
    timers_.AdvanceMs(10);
    EXPECT_FALSE(a->election->view().leading && b->election->view().leading);
  }
  EXPECT_TRUE(b->election->view().leading);
  a->coordinator->SetCutOff(false);
  timers_.AdvanceMs(2 * kLeaseMs);
  EXPECT_FALSE(a->election->view().leading);
  EXPECT_EQ(a->election->view().leader, "b");
  EXPECT_EQ(server_.Items().size(), 2u);
}

TEST_F(ElectionTest, NobodyLeadsWhileTheStoreIsAwayAndTheSameOneAfterwards) {
  const auto a = Start("a");
  const auto b = Start("b");
  server_.SetDown(true);
  timers_.AdvanceMs(kLeaseMs);
  EXPECT_FALSE(a->election->view().leading);
  EXPECT_EQ(b->election->view().leader, "a");
  server_.SetDown(false);
  timers_.AdvanceMs(kLeaseMs);
  EXPECT_TRUE(a->election->view().leading);
}

TEST_F(ElectionTest, AtMostOneLeadsInAnyScheduleAndOneInTheEnd) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<std::unique_ptr<Candidate>> candidates(3);
    Revision fence = 0;
    for (int step = 0; step < 60; ++step) {
      auto& one = candidates[rng.Below(candidates.size())];
      switch (rng.Below(6)) {
        case 0:
          one = nullptr;
          break;
        case 1:
          if (one != nullptr) one->coordinator->SetCutOff(rng.Below(2) == 0);
          break;
        case 2:
          server_.SetDown(rng.Below(3) == 0);
          break;
        case 3:
          server_.LoseAnswers(static_cast<int>(rng.Below(2)));
          break;
        default:
          if (one == nullptr) one = Start("c" + std::to_string(rng.Below(100)));
      }
      for (uint64_t tick = rng.Below(300); tick > 0; --tick) {
        timers_.AdvanceMs(10);
        int leading = 0;
        for (const auto& candidate : candidates) {
          if (candidate == nullptr || !candidate->election->view().leading) continue;
          ++leading;
          EXPECT_GE(candidate->election->view().fence, fence);
          fence = candidate->election->view().fence;
        }
        ASSERT_LE(leading, 1);
      }
    }
    server_.SetDown(false);
    server_.LoseAnswers(0);
    int alive = 0;
    for (const auto& candidate : candidates) {
      if (candidate != nullptr) candidate->coordinator->SetCutOff(false);
      alive += candidate != nullptr ? 1 : 0;
    }
    timers_.AdvanceMs(4 * kLeaseMs);
    int leading = 0;
    for (const auto& candidate : candidates) {
      leading += candidate != nullptr && candidate->election->view().leading ? 1 : 0;
    }
    ASSERT_EQ(leading, alive > 0 ? 1 : 0);
    candidates.clear();
    timers_.AdvanceMs(4 * kLeaseMs);
  }
}

}  // namespace
}  // namespace epic::testing
