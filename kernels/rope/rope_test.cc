#include "kernels/rope/rope.h"

#include <cmath>
#include <complex>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic {
namespace {

std::vector<double> Frequencies(size_t half) {
  std::vector<double> out(half);
  for (size_t j = 0; j < half; ++j) out[j] = std::pow(10000.0, -static_cast<double>(j) / half);
  return out;
}

std::vector<float> RandomRow(size_t count, Rng* rng) {
  std::vector<float> row(count);
  for (float& value : row) value = static_cast<float>(rng->Gaussian());
  return row;
}

// Independent of the table: a pair is a complex number times e^(i angle).
std::vector<double> RotateByComplexNumbers(RopePairs pairs, uint32_t position, const std::vector<float>& in) {
  const size_t half = in.size() / 2;
  std::vector<double> out(in.size());
  for (size_t j = 0; j < half; ++j) {
    const size_t a = pairs == RopePairs::kNorm ? 2 * j : j;
    const size_t b = pairs == RopePairs::kNorm ? 2 * j + 1 : j + half;
    const auto turned = std::complex<double>(in[a], in[b]) * std::polar(1.0, position * Frequencies(half)[j]);
    out[a] = turned.real();
    out[b] = turned.imag();
  }
  return out;
}

double MaxDifference(const std::vector<float>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
  return sum;
}

class RopeTest : public ::testing::TestWithParam<RopePairs> {};

TEST_P(RopeTest, RotationEqualsComplexProductsAndTheOtherPairingDoesNot) {
  const RopePairs other = GetParam() == RopePairs::kNorm ? RopePairs::kNeox : RopePairs::kNorm;
  Rng rng(2);
  for (const size_t dim : {2u, 32u, 64u, 80u, 128u}) {
    const RopeTable table(GetParam(), Frequencies(dim / 2), 9000, 1.0);
    for (const uint32_t position : {0u, 1u, 17u, 511u, 8191u}) {
      const std::vector<float> row = RandomRow(dim, &rng);
      std::vector<float> out(dim);
      RotateRow(table, position, row.data(), out.data());
      // Three roundings of values below 6: the table's two and the sum's.
      EXPECT_LT(MaxDifference(out, RotateByComplexNumbers(GetParam(), position, row)), 6 * 3 * 0x1.0p-24);
      if (position > 0 && dim > 2) {
        EXPECT_GT(MaxDifference(out, RotateByComplexNumbers(other, position, row)), 0.1);
      }
    }
  }
}

TEST_P(RopeTest, ScoresDependOnTheDistanceOnly) {
  Rng rng(3);
  const RopeTable table(GetParam(), Frequencies(32), 9000, 1.0);
  const std::vector<float> q = RandomRow(64, &rng);
  const std::vector<float> k = RandomRow(64, &rng);
  std::vector<float> q_at(64), k_at(64);
  RotateRow(table, 40, q.data(), q_at.data());
  RotateRow(table, 7, k.data(), k_at.data());
  const double near = Dot(q_at, k_at);
  RotateRow(table, 8040, q.data(), q_at.data());
  RotateRow(table, 8007, k.data(), k_at.data());
  EXPECT_NEAR(Dot(q_at, k_at), near, 1e-4);
}

TEST_P(RopeTest, InPlaceEqualsOutOfPlaceAndTheScaleMultiplies) {
  Rng rng(4);
  const RopeTable table(GetParam(), Frequencies(32), 100, 1.0);
  const RopeTable doubled(GetParam(), Frequencies(32), 100, 2.0);
  std::vector<float> row = RandomRow(64, &rng);
  std::vector<float> out(64), scaled(64);
  RotateRow(table, 31, row.data(), out.data());
  RotateRow(doubled, 31, row.data(), scaled.data());
  RotateRow(table, 31, row.data(), row.data());
  EXPECT_EQ(row, out);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(scaled[i], 2 * out[i]);
}

INSTANTIATE_TEST_SUITE_P(Pairs, RopeTest, ::testing::Values(RopePairs::kNorm, RopePairs::kNeox));

}  // namespace
}  // namespace epic
