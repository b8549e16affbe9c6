#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/simd_targets.h"
#include "kernels/api/testing/kernel_ways.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/api/vector_math_test.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/api/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

// REQUIRES: count is a multiple of 16.
void Exp2Array(const float* in, float* out, size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) hn::StoreU(Exp2(hn::LoadU(d, in + i)), d, out + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(Exp2Array);

namespace {

std::vector<float> Exp2On(int64_t target, const std::vector<float>& in) {
  const testing::ForcedSimdTarget forced(target);
  std::vector<float> out(in.size());
  HWY_DYNAMIC_DISPATCH(Exp2Array)(in.data(), out.data(), in.size());
  return out;
}

// Edges, numbers around them, and numbers of every size.
std::vector<float> Inputs() {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> in = {0.0f,   -0.0f, -126.0f, -infinity, std::nanf(""),
                           127.0f, 0.5f,  -0.5f,   -125.5f,   1e-40f};
  in.push_back(std::nextafter(-126.0f, 0.0f));
  in.push_back(std::nextafter(-126.0f, -infinity));
  Rng rng(51);
  while (in.size() < 1 << 16) {
    const auto bits = static_cast<uint32_t>(rng.Below(uint64_t{1} << 32));
    const auto any = std::bit_cast<float>(bits);
    in.push_back(any > 127 ? 0 : any);
    in.push_back(static_cast<float>(rng.Uniform() * 253 - 126));
  }
  in.resize(1 << 16);
  return in;
}

TEST(VectorMathTest, Exp2IsWithinItsBoundAndExactWhereItSaysSo) {
  const std::vector<float> in = Inputs();
  for (const int64_t target : testing::SimdTargets()) {
    const std::vector<float> out = Exp2On(target, in);
    for (size_t i = 0; i < in.size(); ++i) {
      if (std::isnan(in[i])) {
        ASSERT_TRUE(std::isnan(out[i]));
      } else if (in[i] < -126) {
        ASSERT_EQ(out[i], 0) << in[i];
      } else if (in[i] == 0) {
        ASSERT_EQ(out[i], 1);
      } else {
        const double expected = std::exp2(double{in[i]});
        ASSERT_LE(std::abs(out[i] - expected), expected * 0x1.0p-22) << in[i];
      }
    }
  }
}

TEST(VectorMathTest, Exp2HasTheSameBitsOnEveryTargetThatFusesMultiplyAdds) {
  const std::vector<float> in = Inputs();
  std::vector<float> first;
  for (const int64_t target : testing::SimdTargets()) {
    if (target != HWY_AVX3 && target != HWY_AVX2) continue;
    const std::vector<float> out = Exp2On(target, in);
    if (first.empty()) first = out;
    for (size_t i = 0; i < in.size(); ++i) {
      if (std::isnan(in[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(first[i])) << in[i];
    }
  }
}

}  // namespace
}  // namespace epic
#endif  // HWY_ONCE
