#include "services/kv_store/core/disk_watch.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace epic::kv_store {
namespace {

using Kind = DiskWatch::Kind;
using Side = DiskWatch::Side;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class DiskWatchTest : public ::testing::Test {
 protected:
  void Calls(int calls, Kind kind, int64_t ms, uint64_t bytes = 0) {
    for (int call = 0; call < calls; ++call) {
      const DiskWatch::Call on_its_way(&watch_, kind, bytes);
      clock_.AdvanceMs(ms);
    }
  }

  ManualClock clock_;
  DiskWatch watch_{&clock_};
};

TEST_F(DiskWatchTest, ADiskThatAnswersAHundredTimesLaterThanItUsedToIsSlow) {
  Calls(200, Kind::kSync, 1);
  EXPECT_FALSE(watch_.Seen().slow);
  EXPECT_LT(watch_.Seen().wait_ns, 2'000'000);
  Calls(8, Kind::kSync, 100);
  EXPECT_TRUE(watch_.Seen().slow);
  EXPECT_TRUE(watch_.IsSlow(Side::kWriting));
  EXPECT_FALSE(watch_.IsSlow(Side::kReading));
  EXPECT_GT(watch_.Seen().wait_ns, 50'000'000);
  Calls(10'000, Kind::kSync, 100);
  EXPECT_TRUE(watch_.Seen().slow) << "that it is slow for long does not make it usual";
  Calls(16, Kind::kSync, 1);
  EXPECT_FALSE(watch_.Seen().slow);
}

TEST_F(DiskWatchTest, ADiskThatWasNeverQuickIsSlowByTheAbsoluteBoundOnly) {
  Calls(200, Kind::kSync, 20);
  Calls(50, Kind::kSync, 200);
  EXPECT_FALSE(watch_.Seen().slow) << "ten times what is usual";
  Calls(8, Kind::kSync, 260);
  EXPECT_TRUE(watch_.Seen().slow);

  DiskWatch fresh(&clock_);
  for (int call = 0; call < 8; ++call) {
    const DiskWatch::Call on_its_way(&fresh, Kind::kRead, 0);
    clock_.AdvanceMs(300);
  }
  EXPECT_TRUE(fresh.Seen().slow) << "from the first call on";
}

TEST_F(DiskWatchTest, OutliersAreNotASlowDisk) {
  Calls(200, Kind::kSync, 1);
  for (int time = 0; time < 100; ++time) {
    Calls(1, Kind::kSync, 900);
    Calls(3, Kind::kSync, 1);
    EXPECT_FALSE(watch_.Seen().slow) << time;
  }
}

TEST_F(DiskWatchTest, BetweenItsTwoBoundsItStaysWhatItWas) {
  Calls(200, Kind::kSync, 1);
  const auto a_third_late = [this] {
    for (int time = 0; time < 50; ++time) {
      Calls(1, Kind::kSync, 100);
      Calls(2, Kind::kSync, 1);
    }
  };
  a_third_late();
  EXPECT_FALSE(watch_.Seen().slow);
  Calls(16, Kind::kSync, 100);
  EXPECT_TRUE(watch_.Seen().slow);
  a_third_late();
  EXPECT_TRUE(watch_.Seen().slow);
}

TEST_F(DiskWatchTest, ACallThatStandsStillIsSeenBeforeItEnds) {
  Calls(200, Kind::kRead, 1);
  auto stuck = std::make_unique<DiskWatch::Call>(&watch_, Kind::kRead, 0);
  clock_.AdvanceMs(900);
  EXPECT_FALSE(watch_.Seen().slow);
  clock_.AdvanceMs(200);
  EXPECT_TRUE(watch_.Seen().slow);
  EXPECT_GE(watch_.Seen().wait_ns, 1'100'000'000);
  stuck.reset();
  EXPECT_TRUE(watch_.Seen().slow) << "until some calls were quick";
  Calls(16, Kind::kRead, 1);
  EXPECT_FALSE(watch_.Seen().slow);
}

TEST_F(DiskWatchTest, ManyBytesMayTakeTheirTime) {
  Calls(200, Kind::kRead, 1);
  Calls(50, Kind::kRead, 65, 8 * kMiB);  // 123 MiB/s
  EXPECT_FALSE(watch_.Seen().slow);
  Calls(50, Kind::kRead, 900, 8 * kMiB);  // 9 MiB/s
  EXPECT_TRUE(watch_.Seen().slow);
}

TEST_F(DiskWatchTest, BytesThatAreOnTheirWayMayGoFirst) {
  Calls(200, Kind::kRead, 1);
  for (int time = 0; time < 20; ++time) {
    std::vector<std::unique_ptr<DiskWatch::Call>> readers;
    for (int reader = 0; reader < 16; ++reader) {
      readers.push_back(std::make_unique<DiskWatch::Call>(&watch_, Kind::kRead, 8 * kMiB));
    }
    for (; !readers.empty(); readers.pop_back()) clock_.AdvanceMs(8);  // 1 GiB/s shared by 16
  }
  EXPECT_FALSE(watch_.Seen().slow);
}

TEST_F(DiskWatchTest, WhatIsReadFromMemorySaysNothing) {
  Calls(200, Kind::kRead, 1);
  for (int time = 0; time < 8; ++time) {
    Calls(100, Kind::kCachedRead, 0);
    Calls(1, Kind::kCachedRead, 100);
  }
  EXPECT_TRUE(watch_.Seen().slow);
}

TEST_F(DiskWatchTest, ADiskThatNobodyAsksIsNotHeldToBeSlow) {
  Calls(8, Kind::kRead, 300);
  EXPECT_TRUE(watch_.Seen().slow);
  clock_.AdvanceMs(59'000);
  EXPECT_TRUE(watch_.Seen().slow);
  clock_.AdvanceMs(1'000);
  EXPECT_FALSE(watch_.Seen().slow);
  EXPECT_EQ(watch_.Seen().wait_ns, 0);
}

TEST_F(DiskWatchTest, ChangesThatNobodySyncsSaySomethingOnlyWhenTheyStandStill) {
  Calls(200, Kind::kSync, 1);
  Calls(100, Kind::kBuffered, 300);
  EXPECT_FALSE(watch_.Seen().slow);
  Calls(1, Kind::kBuffered, 1100);
  EXPECT_TRUE(watch_.IsSlow(Side::kWriting));
  Calls(100, Kind::kBuffered, 0);
  EXPECT_TRUE(watch_.IsSlow(Side::kWriting));
  Calls(16, Kind::kSync, 1);
  EXPECT_FALSE(watch_.Seen().slow);
}

}  // namespace
}  // namespace epic::kv_store
