#include "services/router/placement/rate_estimate.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic::router {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(RateEstimateTest, NothingMeasuredIsThePrior) {
  RateEstimate rate(100);
  EXPECT_NEAR(rate.Value(0), 100, 1e-9);
  rate.SetPrior(300);
  EXPECT_NEAR(rate.Value(0), 300, 1e-9);
}

TEST(RateEstimateTest, NoisyMeasurementsConvergeToTheirMiddle) {
  RateEstimate rate(100);
  Rng rng(1);
  for (int at = 0; at < 200; ++at) rate.Add(400 * std::exp(0.3 * rng.Gaussian()), at * kSecond / 10);
  EXPECT_NEAR(rate.Value(20 * kSecond), 400, 80);
}

TEST(RateEstimateTest, OneOutlierMovesItByLittle) {
  for (const double factor : {1e-4, 1e4}) {
    RateEstimate rate(100);
    Rng rng(2);
    for (int at = 0; at < 100; ++at) rate.Add(100 * std::exp(0.1 * rng.Gaussian()), at);
    const double before = rate.Value(100);
    rate.Add(100 * factor, 100);
    EXPECT_NEAR(rate.Value(100), before, before * 0.05);
  }
}

TEST(RateEstimateTest, AnOutlierFirstOfAllIsHeldToAFactorOfFour) {
  RateEstimate rate(100);
  rate.Add(1e9, 0);
  EXPECT_LT(rate.Value(0), 410);
}

TEST(RateEstimateTest, ATrueChangeIsFollowedWithinTensOfMeasurements) {
  RateEstimate rate(100);
  for (int at = 0; at < 100; ++at) rate.Add(100, at);
  int needed = 0;
  while (rate.Value(needed) > 27 && needed < 1000) rate.Add(25, ++needed);
  EXPECT_LT(needed, 80);
}

TEST(RateEstimateTest, WhatWasMeasuredLongAgoGivesWayToThePrior) {
  RateEstimate rate(100);
  for (int at = 0; at < 100; ++at) rate.Add(1000, at);
  EXPECT_GT(rate.Value(100), 850);
  EXPECT_NEAR(rate.Value(3600 * kSecond), 100, 1);
}

TEST(RateEstimateTest, WhatIsNoRateIsIgnored) {
  RateEstimate rate(100);
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    rate.Add(bad, 0);
  EXPECT_EQ(rate.samples(), 0u);
  EXPECT_NEAR(rate.Value(0), 100, 1e-9);
}

}  // namespace
}  // namespace epic::router
