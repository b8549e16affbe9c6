#include "kernels/convert/convert.h"

#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"

namespace epic {
namespace {

TEST(ConvertTest, EveryUpperHalfWithEveryKindOfLowerHalfIsRoundedLikeOneValue) {
  std::vector<float> in;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      in.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (const KernelPath path : {KernelPath::kReference, KernelPath::kCpu}) {
    std::vector<Bf16> out(in.size());
    F32ToBf16(in.data(), out.data(), in.size(), path);
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], ToBf16(in[i])) << i;
  }
}

TEST(ConvertTest, WideningIsExactForEveryBf16) {
  std::vector<Bf16> in(0x10000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<Bf16>(i);
  for (const KernelPath path : {KernelPath::kReference, KernelPath::kCpu}) {
    std::vector<float> out(in.size());
    Bf16ToF32(in.data(), out.data(), in.size(), path);
    for (size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), static_cast<uint32_t>(i) << 16);
    }
  }
}

TEST(ConvertTest, SizesAroundTheVectorAndMisalignedStartsWriteNothingElse) {
  Rng rng(31);
  for (size_t count = 0; count <= 70; ++count) {
    for (const size_t shift : {0u, 1u, 3u}) {
      std::vector<float> in(shift + count, 1.5f);
      std::vector<Bf16> half(shift + count + 1, 7);
      F32ToBf16(in.data() + shift, half.data() + shift, count);
      for (size_t i = 0; i < half.size(); ++i) {
        ASSERT_EQ(half[i], i >= shift && i < shift + count ? ToBf16(1.5f) : 7);
      }
      std::vector<float> wide(shift + count + 1, 9.0f);
      Bf16ToF32(half.data() + shift, wide.data() + shift, count);
      for (size_t i = 0; i < wide.size(); ++i) {
        ASSERT_EQ(wide[i], i >= shift && i < shift + count ? 1.5f : 9.0f);
      }
    }
  }
}

}  // namespace
}  // namespace epic
