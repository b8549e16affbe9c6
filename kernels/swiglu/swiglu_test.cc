#include "kernels/swiglu/swiglu.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/testing/kernel_ways.h"

namespace epic {
namespace {

class SwiGluTest : public testing::KernelWayTest {};

std::vector<float> RandomValues(size_t count, double scale, Rng* rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(scale * rng->Gaussian());
  return values;
}

TEST_P(SwiGluTest, EqualsTheFormulaInDoubleOverSizesAndStrides) {
  Rng rng(41);
  ThreadPool pool(2);
  for (const size_t dim : {1u, 7u, 15u, 16u, 17u, 33u, 100u}) {
    for (const size_t rows : {0u, 1u, 15u, 16u, 17u, 40u}) {
      const size_t in_stride = 2 * dim + rng.Below(3), out_stride = dim + rng.Below(3);
      const std::vector<float> in = RandomValues(1 + rows * in_stride, 30, &rng);
      std::vector<float> out(1 + rows * out_stride, 3.0f);
      SwiGlu({.gate = in.data() + 1,
              .up = in.data() + 1 + dim,
              .in_stride = in_stride,
              .rows = rows,
              .dim = dim,
              .out = out.data() + 1,
              .out_stride = out_stride},
             &pool, path());
      for (size_t r = 0; r < rows; ++r) {
        for (size_t i = 0; i < out_stride; ++i) {
          const float got = out[1 + r * out_stride + i];
          if (i >= dim) {
            ASSERT_EQ(got, 3.0f);
            continue;
          }
          const double gate = in[1 + r * in_stride + i], up = in[1 + r * in_stride + dim + i];
          const double expected = gate / (1 + std::exp(-gate)) * up;
          // The power's argument is rounded: |gate| log2(e) u relative, beside Exp2's 2^-22 and three steps.
          const double relative = (std::abs(gate) * 1.5 + 3) * 0x1.0p-24 + 0x1.0p-22;
          ASSERT_NEAR(got, expected, std::abs(expected) * relative + 1e-34 * std::abs(gate * up));
        }
      }
    }
  }
}

TEST_P(SwiGluTest, ExtremesAreRightAndNanStaysInItsElement) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> gate = {0, 1000, -1000, inf, std::nanf(""), 2, -86, -88, 1};
  std::vector<float> up(gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  SwiGlu({.gate = gate.data(),
          .up = up.data(),
          .in_stride = gate.size(),
          .rows = 1,
          .dim = gate.size(),
          .out = out.data(),
          .out_stride = gate.size()},
         nullptr, path());
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 1000);
  EXPECT_NEAR(out[2], 0, 1e-30);
  EXPECT_EQ(out[3], inf);
  EXPECT_TRUE(std::isnan(out[4]));
  EXPECT_NEAR(out[5], 2 / (1 + std::exp(-2.0)), 1e-6);
  EXPECT_NEAR(out[8], 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST_P(SwiGluTest, ARowHasTheSameBytesAloneAndInPlace) {
  Rng rng(42);
  ThreadPool pool(3);
  std::vector<float> in = RandomValues(100 * 90, 2, &rng);
  std::vector<float> all(100 * 45), one(45);
  SwiGluArgs args = {.gate = in.data(),
                     .up = in.data() + 45,
                     .in_stride = 90,
                     .rows = 100,
                     .dim = 45,
                     .out = all.data(),
                     .out_stride = 45};
  SwiGlu(args, &pool, path());
  for (size_t r = 0; r < 100; ++r) {
    args.gate = in.data() + r * 90;
    args.up = args.gate + 45;
    args.rows = 1;
    args.out = r % 2 == 0 ? one.data() : in.data() + r * 90;
    SwiGlu(args, nullptr, path());
    ASSERT_EQ(std::memcmp(args.out, all.data() + r * 45, 45 * 4), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWay, SwiGluTest, ::testing::ValuesIn(testing::KernelWays()),
                         testing::NameOfWay);

}  // namespace
}  // namespace epic
