// Draws a token for each row of logits on a GPU: temperature, top-k, top-p and min-p of sampling.h and a draw
// by a number that the caller gives, so that no state is on the device.
//
// Nothing is sorted: a cut or a draw is a search for the place in the order of logits where a sum passes a
// bound, digit by digit. Sums are of weights in fixed point (2^-45 of the most probable token's), so that
// they have no order: the same logits give the same token in every call. It is the token of sampling.h unless
// a bound lies within about vocab * 2^-46 of the border between two.
#ifndef EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_H_
#define EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/gpu.h"
#include "kernels/sampling/sampling.h"

namespace epic {

// The answer for a row with a NaN or plus infinity, or with nothing above minus infinity.
constexpr uint32_t kNoToken = 0xffffffffu;

// Pointers are device memory.
struct SampleCudaArgs {
  const float* logits = nullptr;  // [rows][stride]
  size_t stride = 0;              // elements
  size_t rows = 0;
  uint32_t vocab = 0;                    // at most 2^18
  const FilterParams* params = nullptr;  // [rows], as FilterCandidates requires; temperature 0 = greedy
  const double* uniforms = nullptr;      // [rows], in [0, 1); not read where greedy
  uint32_t* out = nullptr;               // [rows]
};

// rows == 0 is a no-op. Errors: kInvalid, kUnsupported, kDevice.
GpuStatus SampleCuda(const SampleCudaArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_H_
