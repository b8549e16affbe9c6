#include "services/engine/rope_frequencies.h"

#include <cmath>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic {
namespace {

TEST(RopeFrequenciesTest, PlainFrequenciesFallGeometrically) {
  ASSERT_OK_AND_ASSIGN(const std::vector<double> theta, RopeFrequencies({.base = 10000.0}, 8));
  ASSERT_EQ(theta.size(), 4u);
  EXPECT_DOUBLE_EQ(theta[0], 1.0);
  EXPECT_NEAR(theta[1], 0.1, 1e-15);
  EXPECT_NEAR(theta[2], 0.01, 1e-16);
  EXPECT_NEAR(theta[3], 0.001, 1e-17);
}

TEST(RopeFrequenciesTest, LinearScalingDividesAllAndLlama3EachByItsOwn) {
  ASSERT_OK_AND_ASSIGN(const std::vector<double> linear,
                       RopeFrequencies({.scaling = RopeScaling::kLinear, .factor = 4.0}, 4));
  EXPECT_DOUBLE_EQ(linear[0], 0.25);
  EXPECT_DOUBLE_EQ(linear[1], 0.0025);
  ASSERT_OK_AND_ASSIGN(const std::vector<double> llama3,
                       RopeFrequencies({.scaling = RopeScaling::kLlama3, .divisors = {1.0f, 8.0f}}, 4));
  EXPECT_DOUBLE_EQ(llama3[0], 1.0);
  EXPECT_DOUBLE_EQ(llama3[1], 0.01 / 8.0);
}

// Values of the YaRN formula for head 8, base 10000, factor 4, 32 original positions:
// pair of t turns = 8 ln(32 / (2 pi t)) / (2 ln 10000); beta 32 -> -0.798, so 0; beta 1 -> 0.707, so 1.
TEST(RopeFrequenciesTest, YarnKeepsFastPairsAndInterpolatesSlowOnes) {
  const RopeConfig config{.base = 10000.0,
                          .scaling = RopeScaling::kYarn,
                          .factor = 4.0,
                          .attention_factor = 0.1 * std::log(4.0) + 1.0,
                          .original_context_length = 32};
  ASSERT_OK_AND_ASSIGN(const std::vector<double> theta, RopeFrequencies(config, 8));
  EXPECT_DOUBLE_EQ(theta[0], 1.0);
  EXPECT_NEAR(theta[1], 0.1 / 4, 1e-15);
  EXPECT_NEAR(theta[2], 0.01 / 4, 1e-16);
  EXPECT_NEAR(RopeScale(config), 1.138629436, 1e-9);
  // A longer original context puts pairs on the ramp: low = floor(1.008) = 1, high = ceil(2.513) = 3.
  RopeConfig longer = config;
  longer.original_context_length = 2048;
  ASSERT_OK_AND_ASSIGN(const std::vector<double> ramp, RopeFrequencies(longer, 8));
  EXPECT_NEAR(ramp[1], 0.1, 1e-15);
  EXPECT_NEAR(ramp[2], 0.01 * 0.5 + 0.01 / 4 * 0.5, 1e-16);
  EXPECT_NEAR(ramp[3], 0.001 / 4, 1e-17);
}

TEST(RopeFrequenciesTest, MissingParametersAreErrors) {
  EXPECT_FALSE(RopeFrequencies({}, 7).ok());
  EXPECT_FALSE(RopeFrequencies({.base = 0.0}, 8).ok());
  EXPECT_FALSE(RopeFrequencies({.scaling = RopeScaling::kLlama3}, 8).ok());
  EXPECT_FALSE(RopeFrequencies({.scaling = RopeScaling::kYarn}, 8).ok());
}

}  // namespace
}  // namespace epic
