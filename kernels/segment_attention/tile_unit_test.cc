#include "kernels/segment_attention/tile_unit.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/dispatch.h"
#include "kernels/segment_attention/tile_unit_emulated.h"

namespace epic::internal {
namespace {

// Operands of one product; `c` has a margin of columns that nobody may touch.
struct Operands {
  Operands(size_t row_tiles, size_t col_tiles, size_t k_tiles, bool whole_numbers, Rng* rng)
      : row_tiles(row_tiles), col_tiles(col_tiles), k_tiles(k_tiles) {
    const auto value = [&] {
      return whole_numbers ? static_cast<float>(rng->Below(33)) - 16 : static_cast<float>(rng->Gaussian());
    };
    a.resize(row_tiles * kTileSide * a_stride());
    b.resize(col_tiles * k_tiles * kTileElements);
    c.resize(row_tiles * kTileSide * c_stride());
    for (Bf16& x : a) x = ToBf16(value());
    for (Bf16& x : b) x = ToBf16(value());
    for (float& x : c) x = value();
  }
  size_t a_stride() const { return k_tiles * kTileSteps + 6; }
  size_t c_stride() const { return col_tiles * kTileSide + 3; }

  std::vector<float> Multiply(const TileUnit& unit, bool add) const {
    std::vector<float> out = c;
    unit.begin();
    unit.multiply({.a = a.data(),
                   .a_stride = a_stride(),
                   .b = b.data(),
                   .b_stride = k_tiles,
                   .c = out.data(),
                   .c_stride = c_stride(),
                   .row_tiles = row_tiles,
                   .col_tiles = col_tiles,
                   .k_tiles = k_tiles,
                   .add = add});
    unit.end();
    return out;
  }
  double Element(size_t row, size_t col, bool add) const {
    double sum = add ? c[row * c_stride() + col] : 0;
    for (size_t k = 0; k < k_tiles * kTileSteps; ++k) {
      const size_t tile = col / kTileSide * k_tiles + k / kTileSteps;
      const size_t at = tile * kTileElements + (k % kTileSteps / 2 * kTileSide + col % kTileSide) * 2 + k % 2;
      sum += double{ToF32(a[row * a_stride() + k])} * ToF32(b[at]);
    }
    return sum;
  }

  const size_t row_tiles, col_tiles, k_tiles;
  std::vector<Bf16> a, b;
  std::vector<float> c;
};

// Null where this machine has no such unit.
const TileUnit* UnitOf(const std::string& name) {
  return name == "amx" ? AmxTileUnit() : &EmulatedTileUnit();
}

class TileUnitTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    unit_ = UnitOf(GetParam());
    if (unit_ == nullptr)
      GTEST_SKIP() << "this CPU has no bf16 matrix tiles, or the system does not lend them";
  }
  const TileUnit* unit_ = nullptr;
};

TEST_P(TileUnitTest, EqualsTheDoubleSumOverNumbersOfTiles) {
  Rng rng(41);
  for (size_t rows = 1; rows <= 5; ++rows) {
    for (size_t cols = 1; cols <= 5; ++cols) {
      for (size_t k = 1; k <= 4; ++k) {
        for (const bool add : {false, true}) {
          const Operands operands(rows, cols, k, /*whole_numbers=*/false, &rng);
          const std::vector<float> out = operands.Multiply(*unit_, add);
          // N(0, 1) products, one rounding a step.
          const double most = 0x1.0p-22 * static_cast<double>(k * kTileSteps);
          for (size_t row = 0; row < rows * kTileSide; ++row) {
            for (size_t col = 0; col < operands.c_stride(); ++col) {
              const size_t at = row * operands.c_stride() + col;
              if (col >= cols * kTileSide) {
                ASSERT_EQ(out[at], operands.c[at]);
              } else {
                ASSERT_NEAR(out[at], operands.Element(row, col, add), most * 8);
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(TileUnitTest, WholeNumbersAreExact) {
  Rng rng(42);
  const Operands operands(3, 3, 4, /*whole_numbers=*/true, &rng);
  const std::vector<float> out = operands.Multiply(*unit_, true);
  for (size_t row = 0; row < 3 * kTileSide; ++row) {
    for (size_t col = 0; col < 3 * kTileSide; ++col) {
      ASSERT_EQ(out[row * operands.c_stride() + col], operands.Element(row, col, true));
    }
  }
}

TEST_P(TileUnitTest, ARowDependsOnItselfOnlyAndZerosChangeNothing) {
  Rng rng(43);
  Operands operands(4, 2, 2, /*whole_numbers=*/false, &rng);
  const std::vector<float> all = operands.Multiply(*unit_, true);
  for (const size_t row : {0u, 15u, 16u, 63u}) {
    Operands alone = operands;
    for (size_t i = 0; i < alone.a.size(); ++i) {
      if (i / alone.a_stride() != row) alone.a[i] = i % 3 == 0 ? ToBf16(std::nanf("")) : Bf16{0};
    }
    const std::vector<float> out = alone.Multiply(*unit_, true);
    const size_t at = row * alone.c_stride();
    EXPECT_EQ(std::memcmp(out.data() + at, all.data() + at, alone.c_stride() * sizeof(float)), 0);
  }
  std::fill(operands.a.begin(), operands.a.end(), Bf16{0});
  EXPECT_EQ(operands.Multiply(*unit_, true), operands.c);
}

TEST_P(TileUnitTest, SubnormalNumbersCountAsZero) {
  Rng rng(44);
  Operands operands(1, 1, 1, /*whole_numbers=*/true, &rng);
  std::fill(operands.a.begin(), operands.a.end(), Bf16{1});
  std::fill(operands.c.begin(), operands.c.end(), 0x1.0p-130f);
  const std::vector<float> out = operands.Multiply(*unit_, true);
  for (size_t col = 0; col < kTileSide; ++col) EXPECT_EQ(out[col], 0.0f);
}

TEST_P(TileUnitTest, ValuesThatAreNotFiniteReachTheirColumnOnly) {
  Rng rng(45);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Operands operands(2, 2, 1, /*whole_numbers=*/false, &rng);
    const std::vector<float> clean = operands.Multiply(*unit_, false);
    operands.b[(7 * kTileSide + 5) * 2 + 1] = ToBf16(bad);
    const std::vector<float> out = operands.Multiply(*unit_, false);
    for (size_t i = 0; i < out.size(); ++i) {
      if (i % operands.c_stride() == 5) {
        EXPECT_FALSE(std::isfinite(out[i]));
      } else {
        EXPECT_EQ(out[i], clean[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Units, TileUnitTest, ::testing::Values("emulated", "amx"),
                         [](const auto& info) { return info.param; });

TEST(AmxTileUnitTest, IsThereOnlyWhereTheCpuAndTheSystemHaveIt) {
  if (AmxTileUnit() == nullptr) GTEST_SKIP() << "no bf16 matrix tiles here";
  EXPECT_TRUE(GetCpuFeatures().amx_bf16);
}

}  // namespace
}  // namespace epic::internal
