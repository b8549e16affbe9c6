// Arrays between f32 and bf16. Rounding is that of kernels/api/dtype.h, bit for bit.
//
// Stateless; any thread. Works on the caller's thread: callers split large arrays themselves.
#ifndef EPIC_KERNELS_CONVERT_CONVERT_H_
#define EPIC_KERNELS_CONVERT_CONVERT_H_

#include <cstddef>

#include "kernels/api/dispatch.h"
#include "kernels/api/dtype.h"

namespace epic {

// out[i] = ToBf16(in[i]). The arrays do not overlap; no alignment is needed.
void F32ToBf16(const float* in, Bf16* out, size_t count, KernelPath path = KernelPath::kAuto);

// out[i] = ToF32(in[i]). The arrays do not overlap; no alignment is needed.
void Bf16ToF32(const Bf16* in, float* out, size_t count, KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_CONVERT_CONVERT_H_
