// Root-mean-square norm on a GPU (rms_norm.h), with the addition to the residual stream that stands before
// it. A row's bytes depend on that row only. Queues one launch on the caller's stream: allocates nothing,
// waits for nothing, owns nothing.
#ifndef EPIC_KERNELS_RMS_NORM_RMS_NORM_CUDA_H_
#define EPIC_KERNELS_RMS_NORM_RMS_NORM_CUDA_H_

#include <cstddef>

#include "kernels/api/dtype.h"
#include "kernels/api/gpu.h"
#include "kernels/rms_norm/rms_norm.h"

namespace epic {

// Pointers are device memory.
struct RmsNormCudaArgs {
  RmsNormArgs norm;
  // Added to x first; the sum goes to `sum` and is then normed. Null: x is normed as it is.
  const float* add = nullptr;  // [rows][add_stride]
  size_t add_stride = 0;       // elements
  float* sum = nullptr;        // [rows][sum_stride]; may be x itself, not norm.out. REQUIRED with `add`
  size_t sum_stride = 0;       // elements
  // Takes the result rounded to bf16 in place of norm.out, with norm.out_stride.
  Bf16* out_bf16 = nullptr;
};

// rows == 0 is a no-op. Errors: kInvalid, kDevice.
GpuStatus RmsNormCuda(const RmsNormCudaArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_RMS_NORM_RMS_NORM_CUDA_H_
