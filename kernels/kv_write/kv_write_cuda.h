// Writes rows of keys and values into segments on a GPU, in one launch: keys rotated in f32 at their
// positions, both rounded once to bf16 (kv_write.h). A row's bytes depend on that row and its position only.
// Queued on the caller's stream: allocates nothing, waits for nothing, owns nothing.
#ifndef EPIC_KERNELS_KV_WRITE_KV_WRITE_CUDA_H_
#define EPIC_KERNELS_KV_WRITE_KV_WRITE_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/dtype.h"
#include "kernels/api/gpu.h"
#include "kernels/rope/gpu_rope.h"

namespace epic {

// Where one row goes: its place in kv head 0.
struct KvRowTarget {
  Bf16* k = nullptr;
  Bf16* v = nullptr;
  size_t head_stride = 0;  // elements from one kv head to the next
};

// Pointers are device memory.
struct KvWriteCudaArgs {
  const float* k = nullptr;  // [rows][in_stride]; kv_heads * head_dim per row, not rotated
  const float* v = nullptr;  // the same shape
  size_t in_stride = 0;      // elements
  size_t rows = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;                // even
  GpuRope rope;                         // REQUIRES: every position < max_position
  const uint32_t* positions = nullptr;  // [rows]
  // Decode: every row has a place of its own. Null: all rows go to `target`, one after another.
  const KvRowTarget* row_targets = nullptr;  // [rows]
  KvRowTarget target;                        // of the first row
};

// rows == 0 is a no-op. Errors: kInvalid, kDevice.
GpuStatus KvWriteCuda(const KvWriteCudaArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_KV_WRITE_KV_WRITE_CUDA_H_
