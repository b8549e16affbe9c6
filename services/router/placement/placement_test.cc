#include "services/router/placement/placement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/testing/status_matchers.h"

namespace epic::router {
namespace {

constexpr uint64_t kGB = 1'000'000'000;

PlaceKey KeyOf(uint64_t number) {
  Rng rng(number + 77);
  return {rng.Next(), rng.Next()};
}

NeededObject ObjectOf(uint64_t number) { return {.key = KeyOf(number), .bytes = kGB, .rows = 1000}; }

// One store and some link workers of 1 GB/s and 1000 rows/s, so that an object costs 1 s either way; and
// their index.
class PlacementTest : public ::testing::Test {
 protected:
  explicit PlacementTest(uint32_t explore_samples = 0)
      : index_({.max_nodes = 2048, .max_bytes = 64 << 20}),
        placement_({.link = {.explore_samples = explore_samples},
                    .compile = {.explore_samples = explore_samples},
                    .host_tier_bytes_per_s = 10e9},
                   &index_, &clock_) {
    store_ = *index_.AddNode({.name = "store"});
    Follow(store_);
  }

  void Follow(NodeSlot node) {
    index_.NodeUp(node);
    index_.ApplyInventory(node, {.begins = true, .done = true, .tail_incarnation = 1, .tail_sequence = 1});
  }
  void Hold(NodeSlot node, uint64_t number, Tiers tiers) {
    index_.Correct(node, 1, {.key = KeyOf(number), .tiers = tiers});
  }
  WorkerSlot AddLink(double bytes_per_s = 1e9, double rows_per_s = 1000, std::vector<uint16_t> models = {1}) {
    const std::string name = "w" + std::to_string(nodes_.size());
    nodes_.push_back(*index_.AddNode({.name = name, .kind = NodeKind::kLinkWorker}));
    Follow(nodes_.back());
    const WorkerSlot slot = *placement_.AddWorker(WorkerKind::kLink, {.name = name,
                                                                      .models = models,
                                                                      .node = nodes_.back(),
                                                                      .fetch_bytes_per_s = bytes_per_s,
                                                                      .rows_per_s = rows_per_s});
    EXPECT_EQ(slot + 1u, nodes_.size());
    return slot;
  }
  WorkerSlot AddCompile(double rows_per_s = 1000) {
    const std::string name = "c" + std::to_string(compile_workers_++);
    return *placement_.AddWorker(WorkerKind::kCompile,
                                 {.name = name, .models = {1}, .rows_per_s = rows_per_s});
  }
  PlacementChoice Choose(const std::vector<NeededObject>& objects, uint32_t rows = 100,
                         std::optional<int64_t> deadline_ns = {}, uint16_t model = 1) {
    return placement_.ChooseLink(
        {.model = model, .objects = objects, .rows = rows, .deadline_ns = deadline_ns}, &scratch_);
  }
  void ReportLink(WorkerSlot worker, double queue_s, uint64_t last_serial = 0) {
    placement_.Report(WorkerKind::kLink, worker, {.compute_queue_s = queue_s, .last_serial = last_serial});
  }

  ManualClock clock_;
  PlacementIndex index_;
  Placement placement_;
  Placement::Scratch scratch_;
  NodeSlot store_ = 0;
  std::vector<NodeSlot> nodes_;  // of link workers, by slot
  int compile_workers_ = 0;
};

TEST_F(PlacementTest, TheCostIsBytesNotHeldRowsAndQueue) {
  const WorkerSlot a = AddLink(), b = AddLink(2e9, 500);
  for (const uint64_t number : {1, 2, 3}) Hold(store_, number, kHostTier);
  Hold(nodes_[a], 1, kDeviceTier);
  Hold(nodes_[a], 2, kHostTier);
  ReportLink(a, 5);
  const std::vector<NeededObject> objects = {ObjectOf(1), ObjectOf(2), ObjectOf(3)};
  const LinkRequest request{.model = 1, .objects = objects, .rows = 100};
  const PlacementCost at_a = *placement_.CostAt(request, a, &scratch_);
  EXPECT_NEAR(at_a.queue_s, 5, 1e-6);
  EXPECT_NEAR(at_a.fetch_s, 1 + 0.1, 1e-6);  // one pulled, one from its host memory
  EXPECT_NEAR(at_a.compute_s, 0.1, 1e-6);
  const PlacementCost at_b = *placement_.CostAt(request, b, &scratch_);
  EXPECT_NEAR(at_b.queue_s, 0, 1e-6);
  EXPECT_NEAR(at_b.fetch_s, 1.5, 1e-6);
  EXPECT_NEAR(at_b.compute_s, 0.2, 1e-6);
}

TEST_F(PlacementTest, AHolderIsChosenUntilItsQueueCostsMoreThanTheFetch) {
  AddLink();
  const WorkerSlot holder = AddLink();
  AddLink();
  Hold(store_, 1, kHostTier);
  Hold(nodes_[holder], 1, kDeviceTier);
  ReportLink(holder, 0.9);
  EXPECT_EQ(Choose({ObjectOf(1)}, 0).worker, holder);
  ReportLink(holder, 1.1);
  const PlacementChoice choice = Choose({ObjectOf(1)}, 0);
  EXPECT_NE(choice.worker, holder);
  EXPECT_EQ(choice.fetch_bytes, kGB);
}

TEST_F(PlacementTest, WhatWasSentSinceAReportCountsOnceAndDrains) {
  const WorkerSlot worker = AddLink();
  const auto queue_s = [&] { return placement_.CostAt({.model = 1}, worker, &scratch_)->queue_s; };
  const PlacementChoice first = Choose({}, 1000), second = Choose({}, 2000);
  EXPECT_NEAR(queue_s(), 3, 1e-6);
  EXPECT_EQ(second.serial, first.serial + 1);
  // It says that it has 0.8 s left of the first, and had not seen the second.
  clock_.AdvanceMs(500);
  ReportLink(worker, 0.8, first.serial);
  EXPECT_NEAR(queue_s(), 2.8, 1e-6);
  ReportLink(worker, 2.5, second.serial);
  EXPECT_NEAR(queue_s(), 2.5, 1e-6);
  clock_.AdvanceMs(2000);
  EXPECT_NEAR(queue_s(), 0.5, 1e-6);
  clock_.AdvanceMs(2000);
  EXPECT_EQ(queue_s(), 0);
}

TEST_F(PlacementTest, ABurstBetweenTwoReportsIsSpreadOverEqualWorkers) {
  for (int at = 0; at < 10; ++at) AddLink();
  std::map<WorkerSlot, int> sent;
  for (int request = 0; request < 100; ++request) ++sent[Choose({}, 100).worker];
  for (const auto& [worker, count] : sent) EXPECT_EQ(count, 10) << worker;
  EXPECT_EQ(sent.size(), 10u);
}

TEST_F(PlacementTest, AnObjectThatNoStoreHasIsCompiledWhereThatIsCheaper) {
  const WorkerSlot link = AddLink(100e9, 1000);
  const WorkerSlot compile = AddCompile(4000);
  const PlacementChoice choice = Choose({ObjectOf(1)}, 0);
  EXPECT_TRUE(choice.compile_elsewhere);
  EXPECT_NEAR(choice.cost.compile_s, 0.25, 1e-6);
  EXPECT_NEAR(choice.cost.fetch_s, 0.01, 1e-6);
  placement_.Report(WorkerKind::kCompile, compile, {.compute_queue_s = 0.8});
  ReportLink(link, 0, choice.serial);
  const PlacementChoice here = Choose({ObjectOf(1)}, 0);
  EXPECT_FALSE(here.compile_elsewhere);
  EXPECT_NEAR(here.cost.compute_s, 1, 1e-6);
}

TEST_F(PlacementTest, WhatOnlyAnotherLinkWorkerHoldsCannotBePulled) {
  const WorkerSlot a = AddLink(), b = AddLink();
  Hold(nodes_[a], 1, kDeviceTier);
  const std::vector<NeededObject> objects = {ObjectOf(1)};
  EXPECT_NEAR(placement_.CostAt({.model = 1, .objects = objects}, a, &scratch_)->total(), 0, 1e-6);
  EXPECT_NEAR(placement_.CostAt({.model = 1, .objects = objects}, b, &scratch_)->compute_s, 1, 1e-6);
}

TEST_F(PlacementTest, ACompileGoesToTheShortestQueue) {
  const WorkerSlot a = AddCompile(), b = AddCompile(), c = AddCompile();
  placement_.Report(WorkerKind::kCompile, a, {.compute_queue_s = 2});
  placement_.Report(WorkerKind::kCompile, b, {.compute_queue_s = 1});
  placement_.Report(WorkerKind::kCompile, c, {.compute_queue_s = 3});
  EXPECT_EQ(placement_.ChooseCompile(1, 1500, {}).worker, b);
  EXPECT_EQ(placement_.ChooseCompile(1, 1500, {}).worker, a);
}

TEST_F(PlacementTest, DrainingSuspectedAndSilentWorkersAreLeftOut) {
  const WorkerSlot a = AddLink(), b = AddLink();
  Hold(store_, 1, kHostTier);
  Hold(nodes_[a], 1, kDeviceTier);
  for (const Standing out : {Standing::kDraining, Standing::kSuspected, Standing::kDown}) {
    placement_.SetStanding(WorkerKind::kLink, a, out);
    EXPECT_EQ(Choose({ObjectOf(1)}, 0).worker, b);
    placement_.SetStanding(WorkerKind::kLink, a, Standing::kUp);
    EXPECT_EQ(Choose({ObjectOf(1)}, 0).worker, a);
  }
  clock_.AdvanceMs(1500);
  ReportLink(b, 0);
  placement_.Tick();
  EXPECT_EQ(Choose({ObjectOf(1)}, 0).worker, b);
  ReportLink(a, 0);
  EXPECT_EQ(Choose({ObjectOf(1)}, 0).worker, a);
  placement_.RemoveWorker(WorkerKind::kLink, a);
  EXPECT_EQ(Choose({ObjectOf(1)}, 0).worker, b);
}

TEST_F(PlacementTest, RequestsGoToWorkersOfTheirModelOnly) {
  const WorkerSlot one = AddLink(1e9, 1000, {1}), both = AddLink(1e9, 1000, {1, 2});
  Hold(store_, 1, kHostTier);
  Hold(nodes_[one], 1, kDeviceTier);
  EXPECT_EQ(Choose({ObjectOf(1)}, 0, {}, 1).worker, one);
  EXPECT_EQ(Choose({ObjectOf(1)}, 0, {}, 2).worker, both);
  EXPECT_EQ(Choose({ObjectOf(1)}, 0, {}, 3).outcome, PlacementOutcome::kNoWorker);
}

TEST_F(PlacementTest, ADeadlineThatTheCheapestCannotMeetIsRefusedAtOnce) {
  const WorkerSlot worker = AddLink();
  ReportLink(worker, 2);
  const int64_t now_ns = clock_.SteadyNs();
  const PlacementChoice late = Choose({}, 1000, now_ns + 2'900'000'000);
  EXPECT_EQ(late.outcome, PlacementOutcome::kTooLate);
  EXPECT_NEAR(late.cost.total(), 3, 1e-6);
  EXPECT_EQ(Choose({}, 1000, now_ns + 3'100'000'000).outcome, PlacementOutcome::kChosen);
  ReportLink(worker, 31);
  EXPECT_EQ(Choose({}, 1).outcome, PlacementOutcome::kQueueFull);
  EXPECT_EQ(placement_.counts().too_late, 1u);
  EXPECT_EQ(placement_.counts().queue_full, 1u);
  EXPECT_EQ(placement_.counts().in_flight, 1u);
}

TEST_F(PlacementTest, MeasuredRatesTakeThePlaceOfExpectedOnes) {
  const WorkerSlot worker = AddLink();
  for (int at = 0; at < 50; ++at) {
    // Each tenth is an outlier.
    const double factor = at % 10 == 9 ? 1000 : 1;
    placement_.Done(Choose({}, 10).ticket,
                    {.fetched_bytes = kGB, .fetch_s = 0.5 * factor, .rows = 500, .compute_s = factor});
  }
  ReportLink(worker, 0, 50);
  Hold(store_, 1, kHostTier);
  const std::vector<NeededObject> objects = {ObjectOf(1)};
  const PlacementCost cost =
      *placement_.CostAt({.model = 1, .objects = objects, .rows = 1000}, worker, &scratch_);
  EXPECT_NEAR(cost.fetch_s, 0.5, 0.1);
  EXPECT_NEAR(cost.compute_s, 2, 0.2);
}

TEST_F(PlacementTest, AHotObjectShouldLieOnMoreStores) {
  AddLink();
  Hold(store_, 1, kHostTier);
  Hold(store_, 2, kHostTier);
  for (int at = 0; at < 300; ++at) {
    for (int pull = 0; pull < 4; ++pull) Choose({ObjectOf(1)}, 0);
    if (at % 2 == 0) Choose({ObjectOf(2)}, 0);
    clock_.AdvanceMs(1000);
    ReportLink(0, 0, 5 * static_cast<uint64_t>(at + 1));
  }
  const std::vector<ReplicaWish> wishes = placement_.HotReplicas();
  ASSERT_EQ(wishes.size(), 1u);
  EXPECT_EQ(wishes[0].key, KeyOf(1));
  EXPECT_EQ(wishes[0].stores, 1u);
  EXPECT_NEAR(static_cast<double>(wishes[0].wanted), 5, 1);
}

TEST(HotObjectsTest, AmongManyThatAreUsedOnceAHotOneStands) {
  HotObjects objects(4);
  for (uint64_t at = 0; at < 100'000; ++at) {
    const auto now_ns = static_cast<int64_t>(at) * 1'000'000;
    objects.Count(at % 10 == 0 ? KeyOf(0) : KeyOf(at), 1000, now_ns);
  }
  // 100 of 1000 uses in a second are its own.
  const std::vector<HotObjects::Hot> hot = objects.Above(50'000, 100'000'000'000);
  ASSERT_EQ(hot.size(), 1u);
  EXPECT_EQ(hot[0].key, KeyOf(0));
  EXPECT_TRUE(objects.Above(50'000, 400'000'000'000).empty());
}

class NewWorkersTest : public PlacementTest {
 protected:
  NewWorkersTest() : PlacementTest(3) {}
};

TEST_F(NewWorkersTest, AWorkerNotMeasuredGetsOneRequestAtATime) {
  const WorkerSlot fresh = AddLink(1e9, 1e6), old = AddLink(1e9, 1000);
  for (int at = 0; at < 3; ++at) {
    placement_.SetStanding(WorkerKind::kLink, fresh, Standing::kDraining);
    placement_.Done(Choose({}, 10).ticket, {.rows = 10, .compute_s = 0.01});
  }
  placement_.SetStanding(WorkerKind::kLink, fresh, Standing::kUp);
  const PlacementChoice first = Choose({}, 10);
  EXPECT_EQ(first.worker, fresh);
  for (int at = 0; at < 5; ++at) EXPECT_EQ(Choose({}, 10).worker, old);
  placement_.Done(first.ticket, {.rows = 10, .compute_s = 0.02});
  EXPECT_EQ(Choose({}, 10).worker, fresh);
}

// Hundreds of workers of unequal speed and load, with and without some of the objects.
class ManyWorkersTest : public PlacementTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  void Build(Rng* rng) {
    for (uint64_t number = 0; number < 100; ++number) Hold(store_, number, kHostTier);
    for (size_t at = 0; at < 1000; ++at) {
      const double speed = std::exp2(static_cast<double>(rng->Below(3)));
      const WorkerSlot worker = AddLink(1e9 * speed * std::exp(0.2 * rng->Gaussian()),
                                        1000 * speed * std::exp(0.2 * rng->Gaussian()));
      ReportLink(worker, rng->Below(4) == 0 ? 0 : 5 * rng->Uniform());
      for (int held = 0; held < 4; ++held) Hold(nodes_[worker], rng->Below(100), kDeviceTier);
    }
  }
};

TEST_P(ManyWorkersTest, TheChoiceCostsNotMuchMoreThanTheCheapestOfAll) {
  Rng rng(GetParam());
  Build(&rng);
  double sum = 0, worst = 0;
  constexpr int kRequests = 100;
  for (int request = 0; request < kRequests; ++request) {
    std::vector<NeededObject> objects;
    for (uint64_t count = rng.Below(5); count > 0; --count) objects.push_back(ObjectOf(rng.Below(110)));
    const LinkRequest wanted{
        .model = 1, .objects = objects, .rows = static_cast<uint32_t>(1 + rng.Below(3000))};
    double least = 1e9;
    for (WorkerSlot worker = 0; worker < 1000; ++worker) {
      least = std::min(least, placement_.CostAt(wanted, worker, &scratch_)->total());
    }
    const PlacementChoice choice = placement_.ChooseLink(wanted, &scratch_);
    ASSERT_EQ(choice.outcome, PlacementOutcome::kChosen);
    sum += choice.cost.total() / least;
    worst = std::max(worst, choice.cost.total() / least);
  }
  EXPECT_LT(worst, WorkerFleet::kCellRatio * Placement::kNearlyEqual) << "seed " << GetParam();
  EXPECT_LT(sum / kRequests, 1.2) << "seed " << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Seeds, ManyWorkersTest, ::testing::Range<uint64_t>(1, 6));

// Sixteen routers that do not know of each other, reports ten times a second.
TEST(ManyRoutersTest, RoutersWithTheSameReportsDoNotAllSendToTheSameWorker) {
  constexpr size_t kRouters = 16, kWorkers = 200;
  ManualClock clock;
  PlacementIndex index({.max_nodes = 4, .max_bytes = 1 << 20});
  std::vector<std::unique_ptr<Placement>> routers;
  for (size_t router = 0; router < kRouters; ++router) {
    routers.push_back(std::make_unique<Placement>(
        PlacementOptions{.link = {.explore_samples = 0, .routers = kRouters, .seed = router}}, &index,
        &clock));
    for (size_t at = 0; at < kWorkers; ++at) {
      ASSERT_OK(
          routers.back()
              ->AddWorker(WorkerKind::kLink, {.name = std::to_string(at), .models = {1}, .rows_per_s = 1000})
              .status());
    }
  }
  Placement::Scratch scratch;
  std::vector<double> busy_s(kWorkers, 0);
  double worst_ratio = 0;
  for (int period = 0; period < 50; ++period) {
    for (size_t send = 0; send < 1400; ++send) {  // 10 rows each: 70 % of what the workers can do
      const PlacementChoice choice = routers[send % kRouters]->ChooseLink({.model = 1, .rows = 10}, &scratch);
      busy_s[choice.worker] += 0.01;
    }
    double most = 0;
    for (double& busy : busy_s) most = std::max(most, busy);
    for (double& busy : busy_s) busy = std::max(0.0, busy - 0.1);
    if (period > 5) worst_ratio = std::max(worst_ratio, most / 0.07);
    clock.AdvanceMs(100);
    for (auto& router : routers) {
      for (WorkerSlot at = 0; at < kWorkers; ++at) {
        router->Report(WorkerKind::kLink, at, {.compute_queue_s = busy_s[at], .last_serial = UINT64_MAX});
      }
    }
  }
  EXPECT_LT(worst_ratio, 3.5);
}

}  // namespace
}  // namespace epic::router
