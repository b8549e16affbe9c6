// The sketch against exact counts: never below them, seldom above; and that it forgets.
#include "services/kv_store/core/eviction/frequency_sketch.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::kv_store {
namespace {

TEST(FrequencySketchTest, NeverSaysLessThanTheTruthBeforeItHalves) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    FrequencySketch sketch(1024);
    std::map<uint64_t, uint32_t> counts;
    for (uint64_t i = 0; i + 1 < sketch.period(); ++i) {
      // Few keys often, many seldom.
      const uint64_t key = rng.Below(2) == 0 ? rng.Below(100) : rng.Below(1'000'000);
      sketch.Add(key);
      ++counts[key];
    }
    for (const auto& [key, count] : counts) ASSERT_GE(sketch.Estimate(key), std::min(count, 15u)) << key;
  }
}

TEST(FrequencySketchTest, SeldomSaysMoreThanTheTruth) {
  Rng rng(7);
  FrequencySketch sketch(4096);
  std::map<uint64_t, uint32_t> counts;
  for (int i = 0; i < 8192; ++i) {
    const uint64_t key = rng.Below(4096);
    sketch.Add(key);
    ++counts[key];
  }
  int above = 0;
  for (const auto& [key, count] : counts) above += sketch.Estimate(key) > std::min(count, 15u);
  EXPECT_LT(above, static_cast<int>(counts.size() / 5));
  int strangers = 0;
  for (uint64_t key = 1'000'000; key < 1'001'000; ++key) strangers += sketch.Estimate(key) > 1;
  EXPECT_LT(strangers, 200);
}

TEST(FrequencySketchTest, HalvesWithTimeSoThatOldFameFades) {
  FrequencySketch sketch(64);
  for (int i = 0; i < 15; ++i) sketch.Add(1);
  EXPECT_EQ(sketch.Estimate(1), 15u);
  for (uint64_t i = 15; i < sketch.period(); ++i) sketch.Add(2);
  EXPECT_EQ(sketch.Estimate(1), 7u);
  for (uint64_t round = 0; round < 3; ++round) {
    for (uint64_t i = 0; i < sketch.period(); ++i) sketch.Add(2);
  }
  EXPECT_EQ(sketch.Estimate(1), 0u);
  EXPECT_GE(sketch.Estimate(2), 7u);
}

TEST(FrequencySketchTest, CountsUpToFifteenAndTakesTwoBytesAKey) {
  FrequencySketch sketch(1 << 16);
  for (int i = 0; i < 100; ++i) sketch.Add(42);
  EXPECT_EQ(sketch.Estimate(42), 15u);
  EXPECT_LE(sketch.memory_bytes(), (2u << 16) + 256);
}

}  // namespace
}  // namespace epic::kv_store
