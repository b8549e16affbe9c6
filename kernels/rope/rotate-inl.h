// The rotation of one head vector by SIMD, for the ops that rotate on the way. Included once per SIMD target
// by Highway's foreach_target.
#include <cstddef>
#include <cstdint>

#include "kernels/rope/rope.h"

#if defined(EPIC_KERNELS_ROPE_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPIC_KERNELS_ROPE_ROTATE_INL_H_
#undef EPIC_KERNELS_ROPE_ROTATE_INL_H_
#else
#define EPIC_KERNELS_ROPE_ROTATE_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

// out = scale * rotation of `in`, in f32: three roundings an element. `in` and `out` do not overlap.
// REQUIRES: position < table.max_position().
HWY_INLINE void RotateScaled(const RopeTable& table, uint32_t position, float scale,
                             const float* HWY_RESTRICT in, float* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  const size_t half = table.half_dim();
  const float* cos = table.cos(position);
  const float* sin = table.sin(position);
  const bool norm = table.pairs() == RopePairs::kNorm;
  const auto factor = hn::Set(d, scale);
  size_t j = 0;
  for (; j + hn::Lanes(d) <= half; j += hn::Lanes(d)) {
    auto a = hn::Zero(d);
    auto b = hn::Zero(d);
    if (norm) {
      hn::LoadInterleaved2(d, in + 2 * j, a, b);
    } else {
      a = hn::LoadU(d, in + j);
      b = hn::LoadU(d, in + j + half);
    }
    const auto c = hn::LoadU(d, cos + j);
    const auto s = hn::LoadU(d, sin + j);
    const auto first = hn::Mul(factor, hn::NegMulAdd(b, s, hn::Mul(a, c)));
    const auto second = hn::Mul(factor, hn::MulAdd(b, c, hn::Mul(a, s)));
    if (norm) {
      hn::StoreInterleaved2(first, second, d, out + 2 * j);
    } else {
      hn::StoreU(first, d, out + j);
      hn::StoreU(second, d, out + j + half);
    }
  }
  for (; j < half; ++j) {
    const size_t first = norm ? 2 * j : j;
    const size_t second = norm ? 2 * j + 1 : j + half;
    const float a = in[first];
    const float b = in[second];
    out[first] = scale * (a * cos[j] - b * sin[j]);
    out[second] = scale * (a * sin[j] + b * cos[j]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#endif  // EPIC_KERNELS_ROPE_ROTATE_INL_H_
