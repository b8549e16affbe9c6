// The gate of the feed-forward block by SIMD, for swiglu and for products that gate on the way. Included once
// per SIMD target by Highway's foreach_target.
#include <cstddef>
#include <cstdint>

#if defined(EPIC_KERNELS_SWIGLU_GATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPIC_KERNELS_SWIGLU_GATE_INL_H_
#undef EPIC_KERNELS_SWIGLU_GATE_INL_H_
#else
#define EPIC_KERNELS_SWIGLU_GATE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/api/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

// gate / (1 + 2^(-gate log2 e)) * up. Below -87 the power is held at 2^126, so the result is a tiny number of
// the right sign instead of the exact, still smaller one.
template <class V>
HWY_INLINE V Gate(V gate, V up) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::DFromV<V> d;
  const auto minus_log2e = hn::Set(d, -1.44269504088896340736f);
  const auto exponent = hn::Mul(gate, minus_log2e);
  const auto most = hn::Set(d, 126.0f);
  // Not Min, which may drop a NaN.
  const auto power = Exp2(hn::IfThenElse(hn::Gt(exponent, most), most, exponent));
  return hn::Mul(hn::Div(gate, hn::Add(hn::Set(d, 1.0f), power)), up);
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#endif  // EPIC_KERNELS_SWIGLU_GATE_INL_H_
