#include "kernels/value_distance/value_distance.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/testing/kernel_ways.h"

namespace epic {
namespace {

class ValueDistanceTest : public testing::KernelWayTest {};

// Random values of both types, one element past an aligned address.
struct Values {
  std::vector<float> f32;
  std::vector<Bf16> bf16;
  Values(size_t count, Rng* rng) {
    for (size_t i = 0; i <= count; ++i) {
      bf16.push_back(ToBf16(static_cast<float>(rng->Gaussian())));
      f32.push_back(ToF32(bf16.back()));
    }
  }
  const void* Data(DType dtype) const {
    return dtype == DType::kF32 ? static_cast<const void*>(f32.data() + 1) : bf16.data() + 1;
  }
};

TEST_P(ValueDistanceTest, EqualsTheSumOfSquaresOverSizesAndStrides) {
  Rng rng(71);
  for (const uint32_t dim : {2u, 15u, 16u, 17u, 48u, 64u, 128u}) {
    for (const size_t rows : {0u, 1u, 3u, 100u}) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        constexpr uint32_t kHeads = 3;
        const size_t a_stride = rows * dim + 5;
        const size_t b_stride = (rows + 7) * dim;
        const Values a(kHeads * a_stride, &rng);
        const Values b(kHeads * b_stride, &rng);
        for (const bool zero : {false, true}) {
          std::vector<float> out(kHeads * (rows + 1), -1.0f);
          SquaredDistanceArgs args;
          args.a = {a.Data(dtype), a_stride};
          if (!zero) args.b = {b.Data(dtype), b_stride};
          args.dtype = dtype;
          args.rows = rows;
          args.kv_heads = kHeads;
          args.head_dim = dim;
          args.out = out.data();
          args.out_stride = rows + 1;
          SquaredDistance(args, path());
          for (uint32_t head = 0; head < kHeads; ++head) {
            for (size_t row = 0; row < rows; ++row) {
              double expected = 0;
              for (uint32_t d = 0; d < dim; ++d) {
                const double x = a.f32[1 + head * a_stride + row * dim + d];
                const double y = zero ? 0 : b.f32[1 + head * b_stride + row * dim + d];
                expected += (x - y) * (x - y);
              }
              // A sum of positive terms: each difference, square and addition rounds once.
              ASSERT_NEAR(out[head * (rows + 1) + row], expected, expected * (dim + 4) * 0x1.0p-24);
            }
            ASSERT_EQ(out[head * (rows + 1) + rows], -1.0f);
          }
        }
      }
    }
  }
}

TEST_P(ValueDistanceTest, EqualRowsAreAtZeroAndNanStaysInItsRow) {
  Rng rng(72);
  Values a(4 * 20, &rng);
  std::vector<float> out(4, -1.0f);
  SquaredDistanceArgs args;
  args.a = args.b = {a.Data(DType::kF32), 80};
  args.dtype = DType::kF32;
  args.rows = 4;
  args.kv_heads = 1;
  args.head_dim = 20;
  args.out = out.data();
  args.out_stride = 4;
  SquaredDistance(args, path());
  EXPECT_EQ(out, std::vector<float>(4, 0.0f));
  a.f32[1 + 2 * 20 + 19] = std::numeric_limits<float>::quiet_NaN();
  SquaredDistance(args, path());
  EXPECT_TRUE(std::isnan(out[2]));
  out[2] = 0;
  EXPECT_EQ(out, std::vector<float>(4, 0.0f));
}

INSTANTIATE_TEST_SUITE_P(EveryWay, ValueDistanceTest, ::testing::ValuesIn(testing::KernelWays()),
                         testing::NameOfWay);

}  // namespace
}  // namespace epic
