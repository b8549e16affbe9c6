#include "kernels/kv_write/kv_write.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/testing/kernel_ways.h"

namespace epic {
namespace {

class KvWriteTest : public testing::KernelWayTest {};

constexpr uint32_t kKvHeads = 3;

struct Problem {
  std::vector<float> in;
  std::vector<uint32_t> positions;
  std::vector<float> out32;
  std::vector<Bf16> out16;
};

TEST_P(KvWriteTest, RowsAreRotatedAtTheirPositionsRoundedOnceAndPutWhereTheyBelong) {
  Rng rng(61);
  ThreadPool pool(2);
  for (const uint32_t dim : {2u, 32u, 48u, 64u, 80u, 128u}) {
    std::vector<double> frequencies;
    for (uint32_t j = 0; j < dim / 2; ++j) frequencies.push_back(std::pow(1e4, -2.0 * j / dim));
    for (const RopePairs pairs : {RopePairs::kNorm, RopePairs::kNeox}) {
      const RopeTable rope(pairs, frequencies, 5000, 1.0);
      for (const size_t rows : {0u, 1u, 63u, 64u, 65u}) {
        for (const bool rotate : {true, false}) {
          const size_t stride = kKvHeads * dim + 5, capacity = rows + 9, first = 4;
          Problem p;
          for (size_t i = 0; i < 1 + rows * stride; ++i) p.in.push_back(static_cast<float>(rng.Gaussian()));
          for (size_t r = 0; r < rows; ++r) p.positions.push_back(static_cast<uint32_t>(rng.Below(5000)));
          p.out32.assign(1 + kKvHeads * capacity * dim, 77.0f);
          p.out16.assign(p.out32.size(), 77);
          KvWriteArgs args = {.in = p.in.data() + 1,
                              .in_stride = stride,
                              .rows = rows,
                              .kv_heads = kKvHeads,
                              .head_dim = dim,
                              .rope = rotate ? &rope : nullptr,
                              .positions = rotate ? p.positions.data() : nullptr,
                              .out = p.out32.data() + 1,
                              .dtype = DType::kF32,
                              .head_stride = capacity * dim,
                              .first_row = first};
          KvWrite(args, &pool, path());
          args.out = p.out16.data() + 1;
          args.dtype = DType::kBf16;
          KvWrite(args, &pool, path());
          std::vector<float> expected(dim);
          for (uint32_t g = 0; g < kKvHeads; ++g) {
            for (size_t row = 0; row < capacity; ++row) {
              const size_t at = 1 + (g * capacity + row) * dim;
              if (row < first || row >= first + rows) {
                for (uint32_t d = 0; d < dim; ++d) ASSERT_EQ(p.out32[at + d], 77.0f);
                for (uint32_t d = 0; d < dim; ++d) ASSERT_EQ(p.out16[at + d], 77);
                continue;
              }
              const float* in = p.in.data() + 1 + (row - first) * stride + g * dim;
              if (rotate) {
                RotateRow(rope, p.positions[row - first], in, expected.data());
              } else {
                std::memcpy(expected.data(), in, dim * sizeof(float));
              }
              for (uint32_t d = 0; d < dim; ++d) {
                // Values below 6; fused and plain forms differ by two roundings.
                ASSERT_NEAR(p.out32[at + d], expected[d], rotate ? 6 * 2 * 0x1.0p-24 : 0);
                ASSERT_EQ(p.out16[at + d], ToBf16(p.out32[at + d]));
              }
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryWay, KvWriteTest, ::testing::ValuesIn(testing::KernelWays()),
                         testing::NameOfWay);

}  // namespace
}  // namespace epic
