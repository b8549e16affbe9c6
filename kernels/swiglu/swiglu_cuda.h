// The gate of the feed-forward block on a GPU (swiglu.h). An element's bytes depend on its two
// inputs only. Queues one launch on the caller's stream: allocates nothing, waits for nothing, owns
// nothing.
#ifndef EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_H_
#define EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_H_

#include "kernels/api/dtype.h"
#include "kernels/api/gpu.h"
#include "kernels/swiglu/swiglu.h"

namespace epic {

// Pointers are device memory.
struct SwiGluCudaArgs {
  SwiGluArgs gate;
  // Takes the result rounded to bf16 in place of gate.out, with gate.out_stride.
  Bf16* out_bf16 = nullptr;
};

// rows == 0 is a no-op. Errors: kInvalid, kDevice.
GpuStatus SwiGluCuda(const SwiGluCudaArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_H_
