// The implementations behind convert.h, with its contracts. Stateless; any thread; nothing is allocated. Only
// convert.cc and the tests of this folder look here. The rounding of a single value is dtype.h's, which these
// equal bit for bit.
#ifndef EPIC_KERNELS_CONVERT_CONVERT_INTERNAL_H_
#define EPIC_KERNELS_CONVERT_CONVERT_INTERNAL_H_

#include "kernels/convert/convert.h"

namespace epic::internal {

void F32ToBf16Reference(const float* in, Bf16* out, size_t count);
void Bf16ToF32Reference(const Bf16* in, float* out, size_t count);
void F32ToBf16Cpu(const float* in, Bf16* out, size_t count);
void Bf16ToF32Cpu(const Bf16* in, float* out, size_t count);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_CONVERT_CONVERT_INTERNAL_H_
