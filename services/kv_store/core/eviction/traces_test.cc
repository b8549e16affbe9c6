// The traces are what they say, the optimum is the optimum, and S3-FIFO keeps its bar over LRU on a slice of
// each trace (epic_kv_store_trace_bench shows the whole).
#include "services/kv_store/core/eviction/traces.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::kv_store {
namespace {

constexpr double kBar = 0.015;
constexpr uint64_t kTier = 4000;
constexpr TraceOptions kSlice = {.keys = 3 * kTier, .requests = 200'000};
constexpr TraceOptions kPollutedSlice = {
    .keys = 3 * kTier, .requests = 200'000, .scan_every = kTier, .scan_length = kTier / 4};

// Tries everything that a tier of `capacity` could hold after each request.
uint64_t MostHits(const std::vector<uint64_t>& trace, size_t at, std::set<uint64_t> held, size_t capacity) {
  if (at == trace.size()) return 0;
  const uint64_t hit = held.contains(trace[at]) ? 1 : 0;
  uint64_t best = MostHits(trace, at + 1, held, capacity);
  if (hit) return 1 + best;
  held.insert(trace[at]);
  if (held.size() <= capacity) return std::max(best, MostHits(trace, at + 1, held, capacity));
  for (const uint64_t key : std::set<uint64_t>(held)) {
    std::set<uint64_t> without = held;
    without.erase(key);
    best = std::max(best, MostHits(trace, at + 1, without, capacity));
  }
  return best;
}

TEST(TracesTest, TheOptimumIsWhatTryingEverythingGives) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<uint64_t> trace(9);
    for (uint64_t& key : trace) key = rng.Below(5);
    const uint64_t capacity = 1 + rng.Below(3);
    const double most = static_cast<double>(MostHits(trace, 0, {}, capacity)) / 9;
    EXPECT_DOUBLE_EQ(OptimalHitRatio(trace, capacity), most);
  }
}

TEST(TracesTest, PopularityFallsWithTheRankAsZipfSays) {
  std::map<uint64_t, uint64_t> counts;
  for (const uint64_t key : MakeTrace({.keys = 1000, .requests = 400'000})) ++counts[key];
  std::vector<double> by_rank;
  for (const auto& [key, count] : counts) by_rank.push_back(static_cast<double>(count));
  std::sort(by_rank.rbegin(), by_rank.rend());
  ASSERT_EQ(by_rank.size(), 1000u);
  EXPECT_NEAR(by_rank[0] / by_rank[9], std::pow(10, 0.99), 0.5);
  EXPECT_NEAR(by_rank[9] / by_rank[99], std::pow(10, 0.99), 1.0);
}

TEST(TracesTest, ScansComeOnceAndTheSeedMakesTheTrace) {
  const auto trace = MakeTrace(kPollutedSlice);
  EXPECT_EQ(trace.size(), 200'000u);
  EXPECT_EQ(trace, MakeTrace(kPollutedSlice));
  TraceOptions other = kPollutedSlice;
  other.seed = 2;
  EXPECT_NE(trace, MakeTrace(other));
  std::set<uint64_t> scanned;
  for (const uint64_t key : trace) {
    if (key < kPollutedSlice.keys) continue;
    EXPECT_TRUE(scanned.insert(key).second);
  }
  EXPECT_NEAR(static_cast<double>(scanned.size()), 200'000 / 5.0, 1000);
}

TEST(TracesTest, S3FifoBeatsLruByTheBarAndNothingBeatsTheOptimum) {
  for (const TraceOptions& options : {kSlice, kPollutedSlice}) {
    const auto trace = MakeTrace(options);
    const double lru = HitRatio(trace, EvictionKind::kLru, kTier);
    const double s3_fifo = HitRatio(trace, EvictionKind::kS3Fifo, kTier);
    const double optimum = OptimalHitRatio(trace, kTier);
    std::printf("seed %llu: LRU %.2f %%, S3-FIFO %.2f %%, optimum %.2f %%\n",
                static_cast<unsigned long long>(options.seed), 100 * lru, 100 * s3_fifo, 100 * optimum);
    EXPECT_GE(s3_fifo, lru + kBar);
    EXPECT_GE(optimum, s3_fifo);
    EXPECT_GE(optimum, lru);
  }
}

}  // namespace
}  // namespace epic::kv_store
