#include "kernels/convert/convert.h"

#include "kernels/convert/convert_internal.h"

namespace epic {

void F32ToBf16(const float* in, Bf16* out, size_t count, KernelPath path) {
  if (path == KernelPath::kReference) return internal::F32ToBf16Reference(in, out, count);
  internal::F32ToBf16Cpu(in, out, count);
}

void Bf16ToF32(const Bf16* in, float* out, size_t count, KernelPath path) {
  if (path == KernelPath::kReference) return internal::Bf16ToF32Reference(in, out, count);
  internal::Bf16ToF32Cpu(in, out, count);
}

}  // namespace epic
