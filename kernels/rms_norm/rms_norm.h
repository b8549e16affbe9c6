// Root-mean-square norm: out = x / sqrt(mean(x²) + epsilon) · weight, over rows, or over the heads of rows.
//
// A row's bytes depend on that row only. Stateless; called by one thread, which may lend a pool.
#ifndef EPIC_KERNELS_RMS_NORM_RMS_NORM_H_
#define EPIC_KERNELS_RMS_NORM_RMS_NORM_H_

#include <cstddef>

#include "kernels/api/dispatch.h"
#include "kernels/api/thread_pool.h"

namespace epic {

struct RmsNormArgs {
  const float* x = nullptr;  // [rows][x_stride]; a row holds `groups` vectors of `dim`, one after another
  size_t x_stride = 0;       // elements
  size_t rows = 0;
  size_t groups = 1;              // 1 for a layer norm; the number of heads for a norm of q or k
  size_t dim = 0;                 // elements that are normed together
  const float* weight = nullptr;  // [dim], the same for every group
  float epsilon = 0;
  float* out = nullptr;   // [rows][out_stride]; may be x itself
  size_t out_stride = 0;  // elements
};

// `pool` may be null. rows == 0 is a no-op.
void RmsNorm(const RmsNormArgs& args, ThreadPool* pool, KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_RMS_NORM_RMS_NORM_H_
