// Vector functions that more than one op needs. Included once per SIMD target by Highway's foreach_target.
//
// Pure; the same bits on every target that has fused multiply-adds. Functions that one op alone needs stand
// in its own _cpu.cc.
#include <cstddef>
#include <cstdint>

#if defined(EPIC_KERNELS_API_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPIC_KERNELS_API_VECTOR_MATH_INL_H_
#undef EPIC_KERNELS_API_VECTOR_MATH_INL_H_
#else
#define EPIC_KERNELS_API_VECTOR_MATH_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

// 2^x for x in [-1/2, 1/2], see Exp2.
template <class V>
HWY_INLINE V Exp2OfRest(V rest) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<V> d;
  auto sum = hn::Set(d, 0x1.5bba0cp-10f);
  sum = hn::MulAdd(sum, rest, hn::Set(d, 0x1.3cea88p-7f));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 0x1.c6b752p-5f));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 0x1.ebf9bcp-3f));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 0x1.62e42ap-1f));
  sum = hn::MulAdd(sum, rest, hn::Set(d, 1.0f));
  return sum;
}

// 2^x for x <= 127. Relative error at most 2^-22 (a minimax polynomial of degree 5 on [-1/2, 1/2], 1.9e-7 in
// all); exactly 1 at 0, exactly 0 below -126 and at minus infinity; NaN stays NaN.
template <class V>
HWY_INLINE V Exp2(V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<V> d;
#if HWY_TARGET == HWY_AVX3
  if constexpr (sizeof(V) == 64) {
    // The same bits in fewer instructions: the rest from the nearest integer, and a scaling by a power of
    // two.
    const V rest{_mm512_reduce_ps(x.raw, 8)};
    const __m512 power = _mm512_sub_ps(x.raw, rest.raw);
    const __mmask16 normal = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
    return V{_mm512_maskz_scalef_ps(normal, Exp2OfRest(rest).raw, power)};
  }
#endif
  const hn::RebindToUnsigned<decltype(d)> du;
  // Adding 1.5 * 2^23 + 127 leaves the nearest integer of x, plus the bias of an exponent, in the low bits.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::Add(x, magic);
  const auto rest = hn::Sub(x, hn::Sub(shifted, magic));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(Exp2OfRest(rest), power));
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#endif  // EPIC_KERNELS_API_VECTOR_MATH_INL_H_
