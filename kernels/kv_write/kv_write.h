// Writes rows of keys or values into a segment, head by head: rotated in f32 where a table is given, then
// rounded once to the segment's type.
//
// A row's bytes depend on that row and its position only. Stateless; called by one thread, which may lend a
// pool.
#ifndef EPIC_KERNELS_KV_WRITE_KV_WRITE_H_
#define EPIC_KERNELS_KV_WRITE_KV_WRITE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/dispatch.h"
#include "kernels/api/dtype.h"
#include "kernels/api/thread_pool.h"
#include "kernels/rope/rope.h"

namespace epic {

struct KvWriteArgs {
  const float* in = nullptr;  // [rows][in_stride]; kv_heads * head_dim per row, not rotated
  size_t in_stride = 0;       // elements
  size_t rows = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  const RopeTable* rope = nullptr;      // null for values, which are not rotated
  const uint32_t* positions = nullptr;  // [rows], where each key is rotated; unused without `rope`
  void* out = nullptr;                  // [kv_heads][head_stride]: the start of the segment's K or V
  DType dtype = DType::kBf16;
  size_t head_stride = 0;  // elements from one kv head to the next
  size_t first_row = 0;    // row of the segment that takes the first row of `in`
};

// `pool` may be null. rows == 0 is a no-op.
void KvWrite(const KvWriteArgs& args, ThreadPool* pool, KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_KV_WRITE_KV_WRITE_H_
