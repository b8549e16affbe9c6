#include <algorithm>

#include "kernels/api/scratch.h"
#include "kernels/api/simd_targets.h"
#include "kernels/convert/convert.h"
#include "kernels/kv_write/kv_write_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_write/kv_write_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/rope/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

void KvWriteRows(const KvWriteArgs& args, size_t begin, size_t end) {
  static thread_local Scratch scratch;
  float* rotated = scratch.Get<float>(args.head_dim);
  for (size_t r = begin; r < end; ++r) {
    for (uint32_t g = 0; g < args.kv_heads; ++g) {
      const float* head = args.in + r * args.in_stride + size_t{g} * args.head_dim;
      if (args.rope != nullptr) {
        RotateScaled(*args.rope, args.positions[r], 1.0f, head, rotated);
        head = rotated;
      }
      const size_t at = g * args.head_stride + (args.first_row + r) * args.head_dim;
      if (args.dtype == DType::kF32) {
        std::copy_n(head, args.head_dim, static_cast<float*>(args.out) + at);
      } else {
        // One call a head: the conversion's own dispatch is a load and a jump.
        F32ToBf16(head, static_cast<Bf16*>(args.out) + at, args.head_dim);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(KvWriteRows);
namespace internal {
void KvWriteCpu(const KvWriteArgs& args, size_t begin, size_t end) {
  HWY_DYNAMIC_DISPATCH(KvWriteRows)(args, begin, end);
}
}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
