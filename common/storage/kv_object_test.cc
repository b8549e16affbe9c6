#include "common/storage/kv_object.h"

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(KvObjectTest, OneValueThatIsNoNumberIsFoundWhereverItStands) {
  using Limits = std::numeric_limits<float>;
  for (const float bad :
       {Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    for (size_t at = 0; at < 37; ++at) {
      std::vector<float> values(37, Limits::max());
      values[at] = bad;
      EXPECT_FALSE(AllFinite(std::as_bytes(std::span(values)), KvDtype::kF32)) << bad << " at " << at;
    }
  }
  for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xffff}) {
    for (size_t at = 0; at < 37; ++at) {
      std::vector<uint16_t> values(37, 0x7f7f);  // the largest of bf16
      values[at] = bad;
      EXPECT_FALSE(AllFinite(std::as_bytes(std::span(values)), KvDtype::kBf16)) << bad << " at " << at;
    }
  }
}

TEST(KvObjectTest, TheLargestAndTheSmallestNumbersAreNumbers) {
  using Limits = std::numeric_limits<float>;
  const std::vector<float> values = {0.0f, -0.0f, Limits::max(), Limits::lowest(), Limits::denorm_min()};
  EXPECT_TRUE(AllFinite(std::as_bytes(std::span(values)), KvDtype::kF32));
  const std::vector<uint16_t> bf16 = {0x0000, 0x8000, 0x7f7f, 0xff7f, 0x0001};
  EXPECT_TRUE(AllFinite(std::as_bytes(std::span(bf16)), KvDtype::kBf16));
  EXPECT_TRUE(AllFinite(ByteSpan(), KvDtype::kBf16));
}

}  // namespace
}  // namespace epic
