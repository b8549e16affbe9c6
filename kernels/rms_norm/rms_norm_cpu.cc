#include <cmath>

#include "kernels/api/simd_targets.h"
#include "kernels/rms_norm/rms_norm_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;

// Two chains per lane, summed at the end in a fixed order.
float SumOfSquares(const float* x, size_t count) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i);
    const auto b = hn::LoadU(d, x + i + lanes);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

void RmsNormRows(const RmsNormArgs& args, size_t begin, size_t end) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  for (size_t r = begin; r < end; ++r) {
    for (size_t g = 0; g < args.groups; ++g) {
      const float* x = args.x + r * args.x_stride + g * args.dim;
      float* out = args.out + r * args.out_stride + g * args.dim;
      const float mean = SumOfSquares(x, args.dim) / static_cast<float>(args.dim);
      const float factor = 1.0f / std::sqrt(mean + args.epsilon);
      const auto factors = hn::Set(d, factor);
      size_t i = 0;
      for (; i + lanes <= args.dim; i += lanes) {
        const auto scaled = hn::Mul(hn::LoadU(d, x + i), factors);
        hn::StoreU(hn::Mul(scaled, hn::LoadU(d, args.weight + i)), d, out + i);
      }
      for (; i < args.dim; ++i) out[i] = x[i] * factor * args.weight[i];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(RmsNormRows);
namespace internal {
void RmsNormCpu(const RmsNormArgs& args, size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(RmsNormRows)(args, begin, end);
}
}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
