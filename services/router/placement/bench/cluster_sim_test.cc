// A small slice of the simulation of scale: a tenth of a tenth of the bench, on its virtual clock.
#include "services/router/placement/bench/cluster_sim.h"

#include <gtest/gtest.h>

namespace epic::router {
namespace {

ClusterOptions SmallCluster() {
  ClusterOptions options;
  options.link_workers = 20;
  options.compile_workers = 4;
  options.stores = 10;
  options.routers = 4;
  options.device_contexts = 128;
  options.host_contexts = 1024;
  return options;
}

constexpr TraceOptions kSmallTrace{.contexts = 40'000};

SimResult RunSmall(PolicyKind policy, double per_s, double kill_at_s = -1) {
  ClusterSim sim(SmallCluster(), kSmallTrace, policy);
  sim.Run({.per_s = 800, .seconds = 8, .seed = 1});
  return sim.Run({.per_s = per_s, .seconds = 4, .ignored_s = 1, .seed = 2, .kill_at_s = kill_at_s});
}

constexpr PolicyKind kBaselines[] = {PolicyKind::kRoundRobin, PolicyKind::kLeastLoaded,
                                     PolicyKind::kPrefixHash};

TEST(ClusterSimTest, ASeedGivesTheSameNumbers) {
  const SimResult a = RunSmall(PolicyKind::kOurs, 1000), b = RunSmall(PolicyKind::kOurs, 1000);
  EXPECT_EQ(a.requests, b.requests);
  EXPECT_EQ(a.mean_ttft_s, b.mean_ttft_s);
  EXPECT_EQ(a.p99_ttft_s, b.p99_ttft_s);
  EXPECT_EQ(a.pulled_per_request, b.pulled_per_request);
}

TEST(ClusterSimTest, EveryRequestIsAnsweredOnceUnderEveryPolicy) {
  for (const PolicyKind policy :
       {PolicyKind::kRoundRobin, PolicyKind::kLeastLoaded, PolicyKind::kPrefixHash, PolicyKind::kOurs}) {
    SimTrace trace(kSmallTrace, 2);
    ContextNumber fresh = kSmallTrace.contexts;
    uint64_t wanted = 0;
    for (double at_s = trace.Next(1000, &fresh).at_s; at_s < 4; at_s = trace.Next(1000, &fresh).at_s) {
      wanted += at_s >= 1 ? 1 : 0;
    }
    const SimResult result = RunSmall(policy, 1000, 2);
    EXPECT_EQ(result.requests, wanted) << NameOf(policy);
    EXPECT_GT(result.failed_over, 0u) << NameOf(policy);
  }
}

TEST(ClusterSimTest, WithoutLoadATokenTakesAtLeastItsHopAndItsRows) {
  const ClusterOptions options = SmallCluster();
  const SimResult result = RunSmall(PolicyKind::kOurs, 20);
  EXPECT_GT(result.p50_ttft_s, options.hop_s + 64 / (1.5 * options.link_rows_per_s));
  EXPECT_LT(result.mean_ttft_s, 0.1);
}

TEST(ClusterSimTest, PlacementByWhatIsHeldPullsLess) {
  const SimResult ours = RunSmall(PolicyKind::kOurs, 1100);
  for (const PolicyKind policy : kBaselines) {
    const SimResult result = RunSmall(policy, 1100);
    EXPECT_LT(ours.pulled_per_request, 0.95 * result.pulled_per_request) << NameOf(policy);
  }
  EXPECT_LT(ours.balance, 2.5);
}

TEST(ClusterSimTest, ATenthOfTheNodesDyingIsOverWithinThreeSeconds) {
  ClusterSim sim(SmallCluster(), kSmallTrace, PolicyKind::kOurs);
  sim.Run({.per_s = 800, .seconds = 8, .seed = 1});
  const SimResult result = sim.Run({.per_s = 800, .seconds = 7, .seed = 2, .kill_at_s = 2});
  EXPECT_GT(result.failed_over, 0u);
  const size_t after = static_cast<size_t>(5 / ClusterSim::kWindowS);
  EXPECT_LT(result.window_p95_s[after], 1.5 * result.window_p95_s[4]);
}

}  // namespace
}  // namespace epic::router
