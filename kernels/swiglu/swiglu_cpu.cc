#include "kernels/api/simd_targets.h"
#include "kernels/swiglu/swiglu_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu/swiglu_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/swiglu/gate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;

void SwiGluRows(const SwiGluArgs& args, size_t begin, size_t end) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  for (size_t r = begin; r < end; ++r) {
    const float* gate = args.gate + r * args.in_stride;
    const float* up = args.up + r * args.in_stride;
    float* out = args.out + r * args.out_stride;
    size_t i = 0;
    for (; i + lanes <= args.dim; i += lanes) {
      hn::StoreU(Gate(hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, out + i);
    }
    if (i == args.dim) continue;
    HWY_ALIGN float tail[2][16] = {};
    for (size_t j = i; j < args.dim; ++j) {
      tail[0][j - i] = gate[j];
      tail[1][j - i] = up[j];
    }
    hn::Store(Gate(hn::Load(d, tail[0]), hn::Load(d, tail[1])), d, tail[0]);
    for (size_t j = i; j < args.dim; ++j) out[j] = tail[0][j - i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(SwiGluRows);
namespace internal {
void SwiGluCpu(const SwiGluArgs& args, size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(SwiGluRows)(args, begin, end);
}
}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
