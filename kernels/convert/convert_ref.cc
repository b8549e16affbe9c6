#include "kernels/convert/convert_internal.h"

namespace epic::internal {

void F32ToBf16Reference(const float* in, Bf16* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = ToBf16(in[i]);
}

void Bf16ToF32Reference(const Bf16* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) out[i] = ToF32(in[i]);
}

}  // namespace epic::internal
