#include "kernels/sampling/sum_exp.h"

#include <cmath>
#include <cstddef>

#include "kernels/api/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/sum_exp.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kSums = 8;

double SumOfExpOf(const float* logits, size_t count, float highest, double temperature) {
  const hn::CappedTag<double, kSums> d;
  const hn::Rebind<float, decltype(d)> df;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const auto shift = hn::Set(d, static_cast<double>(highest));
  const auto scale = hn::Set(d, 1 / temperature);
  HWY_ALIGN double sums[kSums] = {};
  size_t i = 0;
  for (size_t part = 0; part < kSums; part += kLanes) {
    auto sum = hn::Zero(d);
    for (i = 0; i + kSums <= count; i += kSums) {
      const auto x = hn::PromoteTo(d, hn::LoadU(df, logits + i + part));
      sum = hn::Add(sum, hn::Exp(d, hn::Mul(hn::Sub(x, shift), scale)));
    }
    hn::Store(sum, d, sums + part);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < count; ++i) {
    total += std::exp((static_cast<double>(logits[i]) - static_cast<double>(highest)) / temperature);
  }
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(SumOfExpOf);
namespace internal {
double SumOfExp(std::span<const float> logits, float highest, double temperature) {
  return HWY_DYNAMIC_DISPATCH(SumOfExpOf)(logits.data(), logits.size(), highest, temperature);
}
}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
