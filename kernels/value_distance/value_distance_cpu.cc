// Squared distances by Highway, in f32.
#include <cstddef>
#include <cstdint>

#include "kernels/api/simd_targets.h"
#include "kernels/value_distance/value_distance_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/value_distance/value_distance_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;

HWY_INLINE hn::Vec<D> LoadValues(const float* from) { return hn::LoadU(D(), from); }
HWY_INLINE hn::Vec<D> LoadValues(const Bf16* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> d32;
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, from))));
}
HWY_INLINE float Value(float value) { return value; }
HWY_INLINE float Value(Bf16 value) { return ToF32(value); }

template <typename T>
HWY_INLINE float RowDistance(const T* a, const T* b, size_t dim) {
  const D d;
  auto sums = hn::Zero(d);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= dim; i += hn::Lanes(d)) {
    auto difference = LoadValues(a + i);
    if (b != nullptr) difference = hn::Sub(difference, LoadValues(b + i));
    sums = hn::MulAdd(difference, difference, sums);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < dim; ++i) {
    const float difference = Value(a[i]) - (b != nullptr ? Value(b[i]) : 0.0f);
    sum += difference * difference;
  }
  return sum;
}

template <typename T>
HWY_INLINE void Distances(const SquaredDistanceArgs& args) {
  for (uint32_t head = 0; head < args.kv_heads; ++head) {
    const T* a = static_cast<const T*>(args.a.data) + head * args.a.head_stride;
    const T* b = static_cast<const T*>(args.b.data);
    if (b != nullptr) b += head * args.b.head_stride;
    for (size_t row = 0; row < args.rows; ++row) {
      const size_t at = row * args.head_dim;
      args.out[head * args.out_stride + row] =
          RowDistance(a + at, b != nullptr ? b + at : nullptr, args.head_dim);
    }
  }
}

}  // namespace

void SquaredDistanceTask(const SquaredDistanceArgs& args) {
  if (args.dtype == DType::kF32) {
    Distances<float>(args);
  } else {
    Distances<Bf16>(args);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(SquaredDistanceTask);

namespace internal {

void SquaredDistanceCpu(const SquaredDistanceArgs& args) { HWY_DYNAMIC_DISPATCH(SquaredDistanceTask)(args); }

}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
