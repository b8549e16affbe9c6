// The gate of the feed-forward block: out = gate / (1 + exp(-gate)) · up, element by element.
//
// An element's bytes depend on its two inputs only. Stateless; called by one thread, which may lend a pool.
#ifndef EPIC_KERNELS_SWIGLU_SWIGLU_H_
#define EPIC_KERNELS_SWIGLU_SWIGLU_H_

#include <cstddef>

#include "kernels/api/dispatch.h"
#include "kernels/api/thread_pool.h"

namespace epic {

struct SwiGluArgs {
  const float* gate = nullptr;  // [rows][in_stride]
  const float* up = nullptr;    // [rows][in_stride]; gate + dim when one product made both
  size_t in_stride = 0;         // elements
  size_t rows = 0;
  size_t dim = 0;
  float* out = nullptr;   // [rows][out_stride]; may be gate or up itself
  size_t out_stride = 0;  // elements
};

// `pool` may be null. rows == 0 is a no-op.
void SwiGlu(const SwiGluArgs& args, ThreadPool* pool, KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_SWIGLU_SWIGLU_H_
