#include "services/engine/logits_difference.h"

#include <cmath>

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(LogitsDifferenceTest, KlMatchesAHandComputedValueAndIsZeroForShiftedLogits) {
  const std::vector<float> p = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const std::vector<float> q = {std::log(0.25f), std::log(0.5f), std::log(0.25f)};
  EXPECT_NEAR(KlDivergence(p, q), 0.5 * std::log(2) - 0.25 * std::log(2), 1e-6);
  std::vector<float> shifted = p;
  for (float& logit : shifted) logit += 7;
  EXPECT_NEAR(KlDivergence(p, shifted), 0, 1e-6);
}

TEST(LogitsDifferenceTest, KlIsNotSymmetricAndCountsWhatPHolds) {
  const std::vector<float> sure = {0, -40, -40}, even = {0, 0, 0};
  EXPECT_NEAR(KlDivergence(sure, even), std::log(3), 1e-12);
  EXPECT_NEAR(KlDivergence(even, sure), 80.0 / 3 - std::log(3), 1e-9);
}

TEST(LogitsDifferenceTest, RunsAreComparedRowByRow) {
  const std::vector<float> a = {2, 0, 0}, b = {0, 2, 0};
  const LogitsDifference same = CompareRuns({a, b, a}, {a, b, a});
  EXPECT_EQ(same.kl, std::vector<double>(3, 0.0));
  EXPECT_EQ(same.Top1(), 1.0);
  EXPECT_EQ(same.KlMean(), 0.0);
  const LogitsDifference first = CompareRuns({a, a, a}, {b, a, a});
  EXPECT_GT(first.kl.front(), 0.1);
  EXPECT_NEAR(first.KlMean(), first.kl.front() / 3, 1e-12);
  EXPECT_EQ(first.KlMedian(), 0.0);
  EXPECT_NEAR(first.Top1(), 2.0 / 3, 1e-12);
  EXPECT_EQ(first.same_likeliest, 2u);
}

TEST(LogitsDifferenceTest, TheMedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) {
  const LogitsDifference difference{.kl = {4, 1, 2, 9}, .same_likeliest = 0};
  EXPECT_EQ(difference.KlMedian(), 3.0);
}

}  // namespace
}  // namespace epic
