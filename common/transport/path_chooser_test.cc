// The chooser over paths that do what the test says, with time by hand.
#include "common/transport/path_chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/status/ending.h"
#include "common/status/error.h"
#include "common/testing/manual_timers.h"
#include "common/testing/status_matchers.h"
#include "common/transport/testing/fetch_log.h"
#include "common/transport/testing/scripted_path.h"
#include "common/transport/testing/test_source.h"

namespace epic::transport {
namespace {

MATCHER_P(EndsAs, end, "ends as " + std::to_string(static_cast<int>(end))) {
  *result_listener << arg.ToString();
  return EndOf(arg) == end;
}

class PathChooserTest : public ::testing::Test {
 protected:
  static constexpr size_t kShm = 0;
  static constexpr size_t kUcx = 1;
  static constexpr size_t kGrpc = 2;

  PathChooserTest() { Make({}); }
  ~PathChooserTest() override {
    chooser_.reset();
    Settle();
    EXPECT_EQ(budget_.usage().in_flight_bytes, (std::array<uint64_t, kTrafficClasses>{}));
  }

  void Make(ChooserOptions options) {
    chooser_.reset();
    downs_.clear();
    options.clock = &clock_;
    options.timers = &timers_;
    options.thread = &thread_;
    options.budget = &budget_;
    options.metrics = &counted_;
    std::vector<PathMaker> makers;
    for (const PathKind kind : {PathKind::kShm, PathKind::kUcx, PathKind::kGrpc}) {
      makers.push_back([this, kind](PeerDownFn down) {
        auto path = std::make_unique<ScriptedPath>(Capabilities{.kind = kind});
        paths_[static_cast<size_t>(kind)] = path.get();
        downs_.push_back(std::move(down));
        return path;
      });
    }
    chooser_ = MakePathChooser(makers, options);
  }

  // Until the thread has done what was posted, and what that posted.
  void Settle() {
    for (int i = 0; i < 4; ++i) {
      auto ending = std::make_shared<Ending>();
      ASSERT_TRUE(thread_.Post([ending] { ending->Set(absl::OkStatus()); }));
      (void)ending->Wait();
    }
  }
  void AdvanceMs(int64_t ms) {
    Settle();
    timers_.AdvanceMs(ms);
    Settle();
  }

  struct Running {
    std::vector<std::vector<std::byte>> buffers;
    std::shared_ptr<FetchLog> log;
    std::shared_ptr<const Region> region;
    FetchId id = 0;
  };
  std::unique_ptr<Running> Start(const std::shared_ptr<const Region>& region, int64_t deadline_ms = 60'000) {
    auto running = std::make_unique<Running>();
    running->region = region;
    FetchRequest request{.region = region};
    running->buffers.resize(region->layout.layers);
    for (uint32_t layer = 0; layer < region->layout.layers; ++layer) {
      running->buffers[layer].resize(region->layout.LayerBytes());
      request.ranges.push_back({.layer = layer, .offset = 0, .to = running->buffers[layer]});
    }
    request.deadline_steady_ns = clock_.SteadyNs() + deadline_ms * 1'000'000;
    running->log = std::make_shared<FetchLog>(request.ranges.size());
    running->id = chooser_->Fetch(request, running->log);
    Settle();
    return running;
  }
  std::unique_ptr<Running> Start(uint32_t layers = 4) {
    return Start(source_.Put(++seeds_, SmallLayout(layers)));
  }
  void ExpectWhole(const Running& running) {
    Settle();
    EXPECT_OK(running.log->WaitDone());
    for (uint32_t layer = 0; layer < running.region->layout.layers; ++layer) {
      EXPECT_OK(running.log->range(layer));
      const ByteSpan right = source_.Bytes(*running.region, layer);
      EXPECT_TRUE(std::equal(right.begin(), right.end(), running.buffers[layer].begin()));
    }
  }
  ScriptedPath& path(size_t way) { return *paths_[way]; }
  uint64_t Bytes(PathKind kind) {
    return metrics_.GetCounter(MetricId::kTransferBytesTotal, {NameOf(kind), "fetch"}).Value();
  }
  uint64_t Cooldowns(PathKind kind) {
    return metrics_.GetCounter(MetricId::kTransferCooldownsTotal, {NameOf(kind)}).Value();
  }

  ManualClock clock_;
  testing::ManualTimers timers_{&clock_};
  TrafficBudget budget_{{}, &clock_, &timers_};
  Metrics metrics_;
  TransferMetrics counted_{&metrics_};
  TestSource source_{5};
  uint64_t seeds_ = 0;
  ProgressThread thread_;
  std::vector<PeerDownFn> downs_;
  std::array<ScriptedPath*, 3> paths_ = {};
  std::unique_ptr<Path> chooser_;
};

TEST_F(PathChooserTest, TheFirstPathIsTakenWhileItWorks) {
  for (int i = 0; i < 3; ++i) {
    const auto running = Start();
    ASSERT_TRUE(path(kShm).WaitForFetches(static_cast<size_t>(i) + 1));
    path(kShm).BringAll(static_cast<size_t>(i), source_);
    ExpectWhole(*running);
  }
  EXPECT_EQ(path(kUcx).fetches() + path(kGrpc).fetches(), 0u);
  EXPECT_EQ(Bytes(PathKind::kShm), 3 * SmallLayout().TotalBytes());
}

TEST_F(PathChooserTest, OnlyWhatIsMissingIsFetchedAgainOnTheNextPath) {
  const auto running = Start();
  path(kShm).Bring(0, 0, source_);
  path(kShm).Bring(0, 2, source_);
  path(kShm).EndAll(0, PathDownStatus("gone"));
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  Settle();
  std::vector<uint32_t> layers;
  for (size_t n = 0; n < path(kUcx).fetches(); ++n) {
    for (const FetchRange& range : path(kUcx).request(n).ranges) layers.push_back(range.layer);
  }
  EXPECT_THAT(layers, ::testing::UnorderedElementsAre(1, 3));
  EXPECT_FALSE(running->log->done());
  for (size_t n = 0; n < path(kUcx).fetches(); ++n) path(kUcx).BringAll(n, source_);
  ExpectWhole(*running);
  EXPECT_EQ(Bytes(PathKind::kShm), SmallLayout().TotalBytes() / 2);
  EXPECT_EQ(Bytes(PathKind::kUcx), SmallLayout().TotalBytes() / 2);
  EXPECT_EQ(Cooldowns(PathKind::kShm), 1u);
}

TEST_F(PathChooserTest, APathThatFailedCoolsDownIsProbedAndComesBack) {
  const auto first = Start(1);
  path(kShm).EndAll(0, PathDownStatus("gone"));
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  path(kUcx).BringAll(0, source_);
  ExpectWhole(*first);

  const auto second = Start(1);
  EXPECT_EQ(path(kShm).fetches(), 1u);
  path(kUcx).BringAll(1, source_);
  ExpectWhole(*second);

  AdvanceMs(99);
  EXPECT_EQ(path(kShm).probes(), 0u);
  AdvanceMs(102);
  ASSERT_TRUE(path(kShm).WaitForProbes(1));
  path(kShm).AnswerProbe(PathDownStatus("still gone"));
  AdvanceMs(199);
  EXPECT_EQ(path(kShm).probes(), 0u);
  AdvanceMs(202);
  ASSERT_TRUE(path(kShm).WaitForProbes(1));
  path(kShm).AnswerProbe(absl::OkStatus());
  Settle();

  const auto third = Start(1);
  ASSERT_TRUE(path(kShm).WaitForFetches(2));
  path(kShm).BringAll(1, source_);
  ExpectWhole(*third);
  EXPECT_EQ(path(kUcx).fetches(), 2u);
}

TEST_F(PathChooserTest, APathWhosePeerIsGoneIsNotTriedFirst) {
  downs_[kShm](PathDownStatus("the socket was closed"));
  Settle();
  const auto running = Start(1);
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  path(kUcx).BringAll(0, source_);
  ExpectWhole(*running);
  EXPECT_EQ(path(kShm).fetches(), 0u);
}

TEST_F(PathChooserTest, PathsThatCoolDownAreTriedWhenNoOtherIsLeft) {
  for (const auto& down : downs_) down(PathDownStatus("gone"));
  Settle();
  const auto running = Start(1);
  path(kShm).EndAll(0, PathDownStatus("gone"));
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  path(kUcx).EndAll(0, PathDownStatus("gone"));
  ASSERT_TRUE(path(kGrpc).WaitForFetches(1));
  path(kGrpc).BringAll(0, source_);
  ExpectWhole(*running);
}

TEST_F(PathChooserTest, AFetchFailsWhenEveryPathFailedTwice) {
  const auto running = Start(1);
  for (size_t round = 0; round < 2; ++round) {
    for (size_t way = 0; way < 3; ++way) {
      ASSERT_TRUE(path(way).WaitForFetches(round + 1));
      path(way).EndAll(round, PathDownStatus("gone"));
    }
  }
  EXPECT_THAT(running->log->WaitDone(), EndsAs(FetchEnd::kPathDown));
  Settle();
  EXPECT_EQ(path(kShm).fetches() + path(kUcx).fetches() + path(kGrpc).fetches(), 6u);
}

TEST_F(PathChooserTest, APathThatCannotBringARegionIsNotBlamed) {
  const auto running = Start(1);
  path(kShm).EndAll(0, NotOnThisPathStatus("too large for an answer"));
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  path(kUcx).BringAll(0, source_);
  ExpectWhole(*running);
  EXPECT_EQ(Cooldowns(PathKind::kShm), 0u);
  const auto next = Start(1);
  ASSERT_TRUE(path(kShm).WaitForFetches(2));
  path(kShm).BringAll(1, source_);
  ExpectWhole(*next);
}

TEST_F(PathChooserTest, APathThatDamagedWhatAnotherBringsWholeIsBlamed) {
  const auto running = Start(1);
  path(kShm).EndAll(0, DamagedStatus(0));
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  EXPECT_EQ(Cooldowns(PathKind::kShm), 0u);
  path(kUcx).BringAll(0, source_);
  ExpectWhole(*running);
  EXPECT_EQ(Cooldowns(PathKind::kShm), 1u);
}

TEST_F(PathChooserTest, BytesThatAreDamagedOnEveryPathAreTheSourcesFault) {
  const auto running = Start(1);
  for (size_t round = 0; round < 2; ++round) {
    for (size_t way = 0; way < 3; ++way) {
      ASSERT_TRUE(path(way).WaitForFetches(round + 1));
      path(way).EndAll(round, DamagedStatus(0));
    }
  }
  EXPECT_THAT(running->log->WaitDone(), EndsAs(FetchEnd::kDamaged));
  for (const PathKind kind : {PathKind::kShm, PathKind::kUcx, PathKind::kGrpc})
    EXPECT_EQ(Cooldowns(kind), 0u);
}

TEST_F(PathChooserTest, ALeaseThatEndedEndsTheFetchAtOnce) {
  const auto running = Start();
  path(kShm).Bring(0, 0, source_);
  path(kShm).End(0, 1, LeaseEndedStatus());
  ASSERT_TRUE(path(kShm).WaitForCancel(0));
  EXPECT_FALSE(running->log->done()) << "buffers are still the path's";
  path(kShm).EndAll(0, CancelledStatus());
  EXPECT_THAT(running->log->WaitDone(), EndsAs(FetchEnd::kLeaseEnded));
  EXPECT_OK(running->log->range(0));
  EXPECT_THAT(running->log->range(3), EndsAs(FetchEnd::kLeaseEnded));
  EXPECT_EQ(path(kUcx).fetches(), 0u);
}

TEST_F(PathChooserTest, WhatTheSourceRefusesIsNotAskedForElsewhere) {
  const auto running = Start();
  path(kShm).End(0, 2, Error(ErrorCode::kContextFailed, "the compile failed"));
  for (const size_t range : {0u, 1u, 3u}) path(kShm).Bring(0, range, source_);
  path(kShm).Done(0, Error(ErrorCode::kContextFailed, "the compile failed"));
  EXPECT_EQ(CodeOf(running->log->WaitDone()), ErrorCode::kContextFailed);
  EXPECT_OK(running->log->range(3));
  EXPECT_EQ(path(kUcx).fetches(), 0u);
}

TEST_F(PathChooserTest, AConfirmationThatWasLostIsAskedForOnAnotherPath) {
  const auto running = Start();
  for (size_t range = 0; range < 4; ++range) path(kShm).Bring(0, range, source_);
  path(kShm).Done(0, PathDownStatus("gone before it could say so"));
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  EXPECT_FALSE(running->log->done());
  ASSERT_EQ(path(kUcx).request(0).ranges.size(), 1u);
  EXPECT_NE(path(kUcx).request(0).ranges[0].to.data(), running->buffers[0].data());
  path(kUcx).BringAll(0, source_);
  ExpectWhole(*running);
}

TEST_F(PathChooserTest, AConfirmationThatSaysNoEndsTheFetchAsALeaseThatEnded) {
  const auto running = Start();
  for (size_t range = 0; range < 4; ++range) path(kShm).Bring(0, range, source_);
  path(kShm).Done(0, PathDownStatus("gone"));
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  path(kUcx).EndAll(0, LeaseEndedStatus());
  EXPECT_THAT(running->log->WaitDone(), EndsAs(FetchEnd::kLeaseEnded));
}

TEST_F(PathChooserTest, APathThatHangsIsGivenUpWhenItDoesNotAnswerAProbe) {
  const auto running = Start(2);
  AdvanceMs(200);
  ASSERT_TRUE(path(kShm).WaitForProbes(1));
  EXPECT_EQ(budget_.usage().in_flight_bytes[0], 0u) << "what stands still must not take room";
  path(kShm).AnswerProbe(DeadlineStatus());
  ASSERT_TRUE(path(kShm).WaitForCancel(0));
  EXPECT_EQ(path(kUcx).fetches(), 0u) << "buffers are still the first path's";
  path(kShm).EndAll(0, CancelledStatus());
  ASSERT_TRUE(path(kUcx).WaitForFetches(1));
  Settle();
  for (size_t n = 0; n < path(kUcx).fetches(); ++n) path(kUcx).BringAll(n, source_);
  ExpectWhole(*running);
}

TEST_F(PathChooserTest, APeerThatAnswersProbesIsWaitedFor) {
  const auto running = Start(2);
  for (const int64_t pause_ms : {200, 400, 800, 1600, 2000, 2000}) {
    AdvanceMs(pause_ms - 1);
    EXPECT_EQ(path(kShm).probes(), 0u);
    AdvanceMs(1);
    ASSERT_TRUE(path(kShm).WaitForProbes(1));
    path(kShm).AnswerProbe(absl::OkStatus());
    Settle();
  }
  EXPECT_EQ(path(kUcx).fetches(), 0u);
  path(kShm).BringAll(0, source_);
  ExpectWhole(*running);
}

TEST_F(PathChooserTest, PrefetchIsBounded) {
  const uint64_t layer = SmallLayout().LayerBytes();
  Make({.batch_bytes = 2 * layer, .prefetch_bytes = 6 * layer});
  const auto running = Start(20);
  EXPECT_EQ(path(kShm).fetches(), 3u);
  size_t next = 0;
  while (!running->log->done()) {
    ASSERT_TRUE(path(kShm).WaitForFetches(next + 1));
    path(kShm).BringAll(next++, source_);
    Settle();
    EXPECT_LE(path(kShm).fetches(), next + 3);
  }
  EXPECT_EQ(next, 10u);
  ExpectWhole(*running);
}

TEST_F(PathChooserTest, ACancelWaitsForThePathAndGivesTheRestBackAtOnce) {
  const uint64_t layer = SmallLayout().LayerBytes();
  Make({.batch_bytes = layer, .prefetch_bytes = 2 * layer});
  const auto running = Start(4);
  chooser_->Cancel(running->id);
  Settle();
  EXPECT_EQ(running->log->ended(), 2u) << "those that no path has yet";
  ASSERT_TRUE(path(kShm).WaitForCancel(0));
  ASSERT_TRUE(path(kShm).WaitForCancel(1));
  path(kShm).BringAll(0, source_);
  path(kShm).EndAll(1, CancelledStatus());
  EXPECT_THAT(running->log->WaitDone(), EndsAs(FetchEnd::kCancelled));
  EXPECT_OK(running->log->range(0));
}

TEST_F(PathChooserTest, TheDeadlineEndsWhatWaitsForTheBudget) {
  TrafficBudget::Ticket ticket = budget_.Ask(TrafficClass::kFetch, uint64_t{64} << 20, [] {});
  EXPECT_NE(ticket, 0u);
  const auto running = Start(source_.Put(++seeds_, SmallLayout()), /*deadline_ms=*/50);
  EXPECT_EQ(path(kShm).fetches(), 0u);
  AdvanceMs(51);
  EXPECT_THAT(running->log->WaitDone(), EndsAs(FetchEnd::kDeadline));
  budget_.Return(TrafficClass::kFetch, uint64_t{64} << 20);
}

TEST_F(PathChooserTest, RangesThatAreTheSameBatchKeepTheirOrder) {
  const auto running = Start(16);
  ASSERT_EQ(path(kShm).fetches(), 1u);
  const FetchRequest request = path(kShm).request(0);
  for (uint32_t layer = 0; layer < 16; ++layer) EXPECT_EQ(request.ranges[layer].layer, layer);
  path(kShm).BringAll(0, source_);
  ExpectWhole(*running);
}

}  // namespace
}  // namespace epic::transport
