#include "kernels/api/simd_targets.h"
#include "kernels/convert/convert_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convert/convert_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::CappedTag<uint32_t, 16>;
using D16 = hn::Rebind<uint16_t, DU>;

// The arithmetic of ToBf16 on vectors of words.
void RoundToBf16(const float* in, Bf16* out, size_t count) {
  const DU d;
  const D16 d16;
  const hn::RebindToFloat<DU> df;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto value = hn::LoadU(df, in + i);
    const auto bits = hn::BitCast(d, value);
    const auto high = hn::ShiftRight<16>(bits);
    const auto even = hn::And(high, hn::Set(d, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(even, hn::Set(d, 0x7fff))));
    const auto quiet = hn::Or(high, hn::Set(d, 0x40));
    const auto is_number = hn::RebindMask(d, hn::Eq(value, value));
    const auto word = hn::IfThenElse(is_number, rounded, quiet);
    hn::StoreU(hn::TruncateTo(d16, word), d16, out + i);
  }
  for (; i < count; ++i) out[i] = ToBf16(in[i]);
}

void WidenBf16(const Bf16* in, float* out, size_t count) {
  const DU d;
  const D16 d16;
  const hn::RebindToFloat<DU> df;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto word = hn::PromoteTo(d, hn::LoadU(d16, in + i));
    hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(word)), df, out + i);
  }
  for (; i < count; ++i) out[i] = ToF32(in[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(RoundToBf16);
HWY_EXPORT(WidenBf16);
namespace internal {
void F32ToBf16Cpu(const float* in, Bf16* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(in, out, count);
}
void Bf16ToF32Cpu(const Bf16* in, float* out, size_t count) {
  HWY_DYNAMIC_DISPATCH(WidenBf16)(in, out, count);
}
}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
