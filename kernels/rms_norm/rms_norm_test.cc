#include "kernels/rms_norm/rms_norm.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/testing/kernel_ways.h"

namespace epic {
namespace {

class RmsNormTest : public testing::KernelWayTest {};

std::vector<float> RandomValues(size_t count, Rng* rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng->Gaussian());
  return values;
}

TEST_P(RmsNormTest, EqualsTheFormulaInDoubleOverSizesGroupsAndStrides) {
  Rng rng(51);
  ThreadPool pool(2);
  for (const size_t dim : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 64u, 576u}) {
    for (const size_t groups : {1u, 3u}) {
      for (const size_t rows : {0u, 1u, 31u, 32u, 33u}) {
        const size_t stride = groups * dim + rng.Below(3);
        const std::vector<float> x = RandomValues(1 + rows * stride, &rng);
        const std::vector<float> weight = RandomValues(1 + dim, &rng);
        std::vector<float> out(1 + rows * stride, 3.0f);
        RmsNorm({.x = x.data() + 1,
                 .x_stride = stride,
                 .rows = rows,
                 .groups = groups,
                 .dim = dim,
                 .weight = weight.data() + 1,
                 .epsilon = 1e-5f,
                 .out = out.data() + 1,
                 .out_stride = stride},
                &pool, path());
        for (size_t at = 0; at < rows * stride; ++at) {
          const size_t r = at / stride, g = at % stride / dim, i = at % stride % dim;
          if (g >= groups) {
            ASSERT_EQ(out[1 + at], 3.0f);
            continue;
          }
          double sum = 0;
          for (size_t j = 0; j < dim; ++j) sum += std::pow(double{x[1 + r * stride + g * dim + j]}, 2);
          const double expected = x[1 + at] / std::sqrt(sum / dim + 1e-5f) * weight[1 + i];
          // A sum of positive terms: dim/2 u relative at most after the root, and five more roundings.
          ASSERT_NEAR(out[1 + at], expected, std::abs(expected) * (dim / 2.0 + 6) * 0x1.0p-24);
        }
      }
    }
  }
}

TEST_P(RmsNormTest, ARowHasTheSameBytesAloneAndInPlaceAndNanStaysInItsRow) {
  Rng rng(52);
  ThreadPool pool(3);
  std::vector<float> x = RandomValues(100 * 70, &rng);
  const std::vector<float> weight = RandomValues(70, &rng);
  x[5 * 70 + 3] = std::nanf("");
  std::vector<float> all(x.size());
  RmsNormArgs args = {.x = x.data(),
                      .x_stride = 70,
                      .rows = 100,
                      .dim = 70,
                      .weight = weight.data(),
                      .epsilon = 1e-6f,
                      .out = all.data(),
                      .out_stride = 70};
  RmsNorm(args, &pool, path());
  for (size_t r = 0; r < 100; ++r) {
    for (size_t i = 0; i < 70; ++i) ASSERT_EQ(std::isnan(all[r * 70 + i]), r == 5);
    if (r == 5) continue;
    args.x = x.data() + r * 70;
    args.rows = 1;
    args.out = x.data() + r * 70;
    RmsNorm(args, nullptr, path());
    ASSERT_EQ(std::memcmp(args.out, all.data() + r * 70, 70 * 4), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWay, RmsNormTest, ::testing::ValuesIn(testing::KernelWays()),
                         testing::NameOfWay);

}  // namespace
}  // namespace epic
