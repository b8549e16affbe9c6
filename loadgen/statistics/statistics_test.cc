#include "loadgen/statistics/statistics.h"

#include <cmath>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/paths.h"

namespace epic::loadgen {
namespace {

TEST(StatisticsTest, MedianAndSpreadOfOddAndEvenNumbers) {
  const std::vector<double> odd = {5, 1, 3}, even = {4, 1, 3, 2};
  EXPECT_EQ(Median(odd), 3);
  EXPECT_EQ(Median(even), 2.5);
  EXPECT_EQ(Mean(even), 2.5);
  const Spread spread = SpreadOf(odd);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.max, 5);
}

TEST(StatisticsTest, QuantilesAreLinearBetweenRanks) {
  const std::vector<double> values = {10, 20, 30, 40};
  EXPECT_EQ(Quantile(values, 0), 10);
  EXPECT_EQ(Quantile(values, 1), 40);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.5), 25);
  EXPECT_DOUBLE_EQ(Quantile(values, 0.1), 13);
}

TEST(StatisticsTest, OneValueOrEqualValuesHaveAnIntervalOfNoWidth) {
  for (const std::vector<double>& values : {std::vector<double>{2.5}, std::vector<double>(9, 2.5)}) {
    const Interval interval = MeanInterval(values, {});
    EXPECT_EQ(interval.low, 2.5);
    EXPECT_EQ(interval.high, 2.5);
  }
}

TEST(StatisticsTest, TheIntervalOfAMeanIsThatOfTheNormalLaw) {
  // 400 draws: the bootstrap's standard error is close to sigma / 20.
  Rng rng(11);
  std::vector<double> values(400);
  for (double& value : values) value = 3 + rng.Gaussian();
  double square = 0;
  for (const double value : values) square += (value - Mean(values)) * (value - Mean(values));
  const double error = std::sqrt(square) / 400;
  const Interval interval = MeanInterval(values, {});
  EXPECT_NEAR(interval.low, Mean(values) - 1.96 * error, 0.1 * error);
  EXPECT_NEAR(interval.high, Mean(values) + 1.96 * error, 0.1 * error);
}

TEST(StatisticsTest, PairingTakesAwayWhatBothSidesShare) {
  // Prompts differ a hundredfold, the two sides by a fifth: paired, the ratio has hardly any width.
  Rng rng(12);
  std::vector<double> base(60), better(60);
  for (size_t i = 0; i < base.size(); ++i) {
    base[i] = 0.01 + rng.Uniform();
    better[i] = 0.8 * base[i];
  }
  const std::optional<Ratio> ratio = MeanRatio(better, base, {});
  ASSERT_TRUE(ratio.has_value());
  EXPECT_NEAR(ratio->value, 0.8, 1e-12);
  EXPECT_NEAR(ratio->interval.low, 0.8, 1e-12);
  EXPECT_NEAR(ratio->interval.high, 0.8, 1e-12);
}

TEST(StatisticsTest, ARatioToZeroIsNone) {
  const std::vector<double> some = {1, 2}, zero = {0, 0}, once = {0, 1};
  EXPECT_FALSE(MeanRatio(some, zero, {}).has_value());
  EXPECT_FALSE(MeanRatio(some, once, {}).has_value()) << "a resample can draw the zero twice";
  EXPECT_EQ(MeanRatio(zero, some, {})->value, 0);
}

TEST(StatisticsTest, TheSameSeedGivesTheSameInterval) {
  const std::vector<double> values = {1, 2, 3, 4, 7};
  const Interval once = MeanInterval(values, {.resamples = 500, .seed = 3});
  const Interval again = MeanInterval(values, {.resamples = 500, .seed = 3});
  const Interval other = MeanInterval(values, {.resamples = 500, .seed = 4});
  EXPECT_EQ(once.low, again.low);
  EXPECT_EQ(once.high, again.high);
  EXPECT_TRUE(once.low != other.low || once.high != other.high);
}

std::vector<double> Read(std::istream& in, size_t count) {
  std::vector<double> values(count);
  for (double& value : values) in >> value;
  return values;
}

TEST(StatisticsTest, IntervalsEqualThoseOfNumpy) {
  std::istringstream lines(
      testing::ReadFileOrDie(testing::SourceDir() + "/loadgen/statistics/golden/bootstrap.txt"));
  int seen = 0;
  for (std::string line; std::getline(lines, line); ++seen) {
    std::istringstream in(line);
    std::string name;
    BootstrapOptions options;
    size_t count = 0;
    in >> name >> options.resamples >> options.seed >> options.confidence >> count;
    SCOPED_TRACE(name + " of " + std::to_string(count));
    const std::vector<double> values = Read(in, count);
    if (name == "mean") {
      const std::vector<double> expected = Read(in, 5);
      EXPECT_NEAR(Mean(values), expected[0], 1e-12);
      EXPECT_NEAR(Median(values), expected[1], 1e-12);
      EXPECT_NEAR(Quantile(values, 0.3), expected[2], 1e-12);
      const Interval interval = MeanInterval(values, options);
      EXPECT_NEAR(interval.low, expected[3], 1e-12);
      EXPECT_NEAR(interval.high, expected[4], 1e-12);
    } else {
      const std::vector<double> others = Read(in, count);
      const std::vector<double> expected = Read(in, 3);
      const std::optional<Ratio> ratio = MeanRatio(values, others, options);
      ASSERT_TRUE(ratio.has_value());
      EXPECT_NEAR(ratio->value, expected[0], 1e-12);
      EXPECT_NEAR(ratio->interval.low, expected[1], 1e-12);
      EXPECT_NEAR(ratio->interval.high, expected[2], 1e-12);
    }
    EXPECT_TRUE(static_cast<bool>(in)) << "a line is too short";
  }
  EXPECT_EQ(seen, 6);
}

}  // namespace
}  // namespace epic::loadgen
