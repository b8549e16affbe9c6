#include "kernels/api/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic {
namespace {

TEST(DtypeTest, EveryBf16SurvivesTheWayThroughF32) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = ToF32(static_cast<Bf16>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToF32(ToBf16(value))));
    } else {
      EXPECT_EQ(ToBf16(value), bits);
    }
  }
}

TEST(DtypeTest, RoundingGoesToTheNearestAndTiesToEven) {
  EXPECT_EQ(ToBf16(1.0f + 0x1.0p-8f), 0x3f80);                   // a tie: down to the even one
  EXPECT_EQ(ToBf16(1.0f + 0x1.8p-7f), 0x3f82);                   // a tie: up to the even one
  EXPECT_EQ(ToBf16(1.0f + 0x1.0p-8f + 0x1.0p-20f), 0x3f81);      // just above a tie
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()), 0x7f80);  // beyond the largest: infinity
}

TEST(DtypeTest, TheErrorIsAtMostHalfAUnitInTheLastPlace) {
  Rng rng(1);
  for (int i = 0; i < 100000; ++i) {
    const float value = static_cast<float>(rng.Gaussian() * std::exp(8 * rng.Gaussian()));
    EXPECT_LE(std::abs(ToF32(ToBf16(value)) - value), std::abs(value) * 0x1.0p-8f);
  }
}

}  // namespace
}  // namespace epic
