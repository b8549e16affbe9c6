// Gathers and scatters rows on a GPU: the rows of a link that a strategy picked, last rows for the head,
// results back to their places. Rows are words of 32 bits, copied as they are. Queued on the caller's stream:
// allocates nothing, waits for nothing, owns nothing.
#ifndef EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_H_
#define EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/gpu.h"

namespace epic {

// Pointers are device memory; `in` and `out` do not overlap.
struct RowCopyArgs {
  const uint32_t* in = nullptr;    // [...][in_stride]
  size_t in_stride = 0;            // words
  const uint32_t* rows = nullptr;  // [count]: rows of `in` (gather), different rows of `out` (scatter)
  size_t count = 0;
  size_t words = 0;         // of a row
  uint32_t* out = nullptr;  // [...][out_stride]
  size_t out_stride = 0;    // words
};

// out[i] = in[rows[i]]. Errors: kInvalid, kDevice.
GpuStatus GatherRowsCuda(const RowCopyArgs& args, GpuStream stream);
// out[rows[i]] = in[i]. Errors: kInvalid, kDevice.
GpuStatus ScatterRowsCuda(const RowCopyArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_H_
