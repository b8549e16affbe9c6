#include "common/transport/traffic_budget.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/random.h"
#include "common/testing/manual_timers.h"

namespace epic::transport {
namespace {

constexpr TrafficClass kFetch = TrafficClass::kFetch;
constexpr TrafficClass kBehind = TrafficClass::kWriteBehind;
constexpr TrafficClass kRepair = TrafficClass::kRepair;

class TrafficBudgetTest : public ::testing::Test {
 protected:
  TrafficBudget& Make(const TrafficLimits& limits) {
    budget_ = std::make_unique<TrafficBudget>(limits, &clock_, &timers_);
    return *budget_;
  }
  TrafficBudget::Ticket Ask(TrafficClass traffic, uint64_t bytes, char name) {
    return budget_->Ask(traffic, bytes, [this, name] { granted_ += name; });
  }

  ManualClock clock_;
  testing::ManualTimers timers_{&clock_};
  std::unique_ptr<TrafficBudget> budget_;
  std::string granted_;
};

TEST_F(TrafficBudgetTest, WhatFitsIsGrantedAtOnceAndTheRestInOrder) {
  TrafficBudget& budget = Make({.in_flight_bytes = 100, .classes = {{{100}, {100}, {100}}}});
  Ask(kFetch, 60, 'a');
  Ask(kFetch, 60, 'b');
  Ask(kFetch, 10, 'c');
  EXPECT_EQ(granted_, "a");
  EXPECT_EQ(budget.usage().in_flight_bytes[0], 60u);
  EXPECT_EQ(budget.usage().waiting[0], 2u);
  budget.Return(kFetch, 60);
  EXPECT_EQ(granted_, "abc");
}

TEST_F(TrafficBudgetTest, WhatIsLargerThanTheLimitGoesAlone) {
  TrafficBudget& budget = Make({.in_flight_bytes = 100, .classes = {{{100}, {100}, {100}}}});
  Ask(kFetch, 10, 'a');
  Ask(kFetch, 1000, 'b');
  EXPECT_EQ(granted_, "a");
  budget.Return(kFetch, 10);
  EXPECT_EQ(granted_, "ab");
  Ask(kFetch, 1, 'c');
  EXPECT_EQ(granted_, "ab");
  budget.Return(kFetch, 1000);
  EXPECT_EQ(granted_, "abc");
}

TEST_F(TrafficBudgetTest, HigherClassesGoFirst) {
  TrafficBudget& budget = Make({.in_flight_bytes = 100, .classes = {{{100}, {100}, {100}}}});
  Ask(kFetch, 100, '.');
  Ask(kRepair, 50, 'r');
  Ask(kBehind, 50, 'w');
  Ask(kFetch, 100, 'f');
  budget.Return(kFetch, 100);
  EXPECT_EQ(granted_, ".f");
  budget.Return(kFetch, 100);
  EXPECT_EQ(granted_, ".fwr");
}

TEST_F(TrafficBudgetTest, AFetchThatWaitsForRoomHoldsUpThoseBelow) {
  TrafficBudget& budget = Make({.in_flight_bytes = 100, .classes = {{{100}, {100}, {100}}}});
  Ask(kFetch, 60, '.');
  Ask(kFetch, 60, 'f');
  Ask(kRepair, 10, 'r');
  EXPECT_EQ(granted_, ".");
  budget.Return(kFetch, 60);
  EXPECT_EQ(granted_, ".fr");
}

TEST_F(TrafficBudgetTest, AClassThatIsAtItsOwnLimitHoldsUpNobodyElse) {
  TrafficBudget& budget = Make({.in_flight_bytes = 100, .classes = {{{100}, {20}, {20}}}});
  Ask(kBehind, 20, 'w');
  Ask(kBehind, 20, 'x');
  Ask(kRepair, 20, 'r');
  Ask(kFetch, 60, 'f');
  EXPECT_EQ(granted_, "wrf");
  budget.Return(kBehind, 20);
  EXPECT_EQ(granted_, "wrfx");
}

TEST_F(TrafficBudgetTest, ALinkGivesItsRateAndFetchesFindTheReserveOfOthers) {
  TrafficLimits limits = {.in_flight_bytes = 1 << 20, .bytes_per_s = 1000, .burst_bytes = 1000};
  limits.classes = {{{1 << 20}, {1 << 20, 0, 250}, {1 << 20, 0, 500}}};
  Make(limits);
  Ask(kRepair, 600, 'r');  // leaves 400
  Ask(kRepair, 1, 's');
  Ask(kBehind, 200, 'w');  // leaves 200
  Ask(kBehind, 1, 'x');
  EXPECT_EQ(granted_, "rw");
  Ask(kFetch, 300, 'f');  // overdraws: -100
  EXPECT_EQ(granted_, "rwf");
  Ask(kFetch, 1, 'g');
  EXPECT_EQ(granted_, "rwf");
  timers_.AdvanceMs(90);
  EXPECT_EQ(granted_, "rwf");
  timers_.AdvanceMs(20);
  EXPECT_EQ(granted_, "rwfg");
  timers_.AdvanceMs(200);
  EXPECT_EQ(granted_, "rwfg");
  timers_.AdvanceMs(50);
  EXPECT_EQ(granted_, "rwfgx");
  timers_.AdvanceMs(260);
  EXPECT_EQ(granted_, "rwfgxs");
}

TEST_F(TrafficBudgetTest, AClassHasARateOfItsOwn) {
  TrafficLimits limits = {.in_flight_bytes = 1 << 20, .burst_bytes = 100};
  limits.classes = {{{1 << 20}, {1 << 20}, {1 << 20, 100}}};
  Make(limits);
  Ask(kRepair, 200, 'r');  // a second behind
  Ask(kRepair, 1, 's');
  Ask(kFetch, 5000, 'f');
  Ask(kBehind, 5000, 'w');
  EXPECT_EQ(granted_, "rfw");
  timers_.AdvanceMs(990);
  EXPECT_EQ(granted_, "rfw");
  timers_.AdvanceMs(40);
  EXPECT_EQ(granted_, "rfws");
}

TEST_F(TrafficBudgetTest, WhoWithdrawsIsNotGranted) {
  TrafficBudget& budget = Make({.in_flight_bytes = 100, .classes = {{{100}, {100}, {100}}}});
  const auto first = Ask(kFetch, 100, 'a');
  const auto second = Ask(kFetch, 100, 'b');
  Ask(kFetch, 50, 'c');
  EXPECT_FALSE(budget.Withdraw(first));
  EXPECT_TRUE(budget.Withdraw(second));
  EXPECT_FALSE(budget.Withdraw(second));
  EXPECT_FALSE(budget.Withdraw(12345));
  budget.Return(kFetch, 100);
  EXPECT_EQ(granted_, "ac");
}

TEST_F(TrafficBudgetTest, RandomUseNeverExceedsTheLimitsAndEndsAtZero) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    TrafficLimits limits = {.in_flight_bytes = 1000, .bytes_per_s = 100'000, .burst_bytes = 2000};
    limits.classes = {{{800}, {500, 50'000, 500}, {300, 20'000, 1000}}};
    TrafficBudget& budget = Make(limits);
    std::vector<std::pair<TrafficClass, uint64_t>> out;
    size_t asked = 0;
    for (int step = 0; step < 2000; ++step) {
      const auto traffic = static_cast<TrafficClass>(rng.Below(3));
      const uint64_t bytes = 1 + rng.Below(400);
      if (rng.Below(2) == 0) {
        ++asked;
        budget.Ask(traffic, bytes, [&out, traffic, bytes] { out.emplace_back(traffic, bytes); });
      } else if (!out.empty()) {
        const size_t at = rng.Below(out.size());
        const auto [of, back] = out[at];
        out.erase(out.begin() + static_cast<ptrdiff_t>(at));
        --asked;
        budget.Return(of, back);
      }
      if (rng.Below(3) == 0) timers_.AdvanceMs(static_cast<int64_t>(rng.Below(3)));
      const auto usage = budget.usage();
      uint64_t total = 0;
      for (size_t i = 0; i < kTrafficClasses; ++i) {
        total += usage.in_flight_bytes[i];
        EXPECT_LE(usage.in_flight_bytes[i], std::max<uint64_t>(limits.classes[i].in_flight_bytes, 400));
      }
      EXPECT_LE(total, limits.in_flight_bytes);
    }
    for (int round = 0; round < 100'000 && asked > 0; ++round) {
      timers_.AdvanceMs(10);
      while (!out.empty()) {
        const auto [of, back] = out.back();
        out.pop_back();
        --asked;
        budget.Return(of, back);
      }
    }
    EXPECT_EQ(asked, 0u) << "somebody was never granted";
    EXPECT_EQ(budget.usage().in_flight_bytes[0] + budget.usage().in_flight_bytes[1], 0u);
  }
}

}  // namespace
}  // namespace epic::transport
