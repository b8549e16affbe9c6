// Attention of decode rows: one row each of any number of sequences, over each one's own segment list. What
// several sequences read of the same memory is read once for all of them.
//
// A segment is attended by itself, in ranges of a fixed number of its rows, and the results of a row are
// joined in the order of its list. So sequences may have the same object at different positions, with other
// rows replaced, in another order: each (row, segment) has its own rotation and its own mask, and its
// arithmetic is the same in company and alone, on any number of threads. It is not that of
// segment_attention/, which goes through a list in one pass: a row's kind decides which of the two it takes,
// never its company.
#ifndef EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_H_
#define EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/api/dispatch.h"
#include "kernels/api/thread_pool.h"
#include "kernels/rope/rope.h"
#include "kernels/segment_attention/segment_attention.h"

namespace epic {

struct DecodeRow {
  const float* q = nullptr;             // [heads * head_dim], not rotated
  uint32_t position = 0;                // absolute; the row sees the keys at or before it
  std::span<const KvSegment> segments;  // in order of position; the same memory may be listed more than once
  float* out = nullptr;                 // [heads * head_dim]; a row that sees nothing gets zeros
};

struct DecodeAttentionArgs {
  std::span<const DecodeRow> rows;
  uint32_t heads = 0;     // H; heads % kv_heads == 0; head h reads kv head h / (H/G)
  uint32_t kv_heads = 0;  // G
  uint32_t head_dim = 0;  // D, a multiple of 2
  float scale = 0;        // 1/sqrt(head_dim)
  const RopeTable* rope = nullptr;
};

// Segments are the same memory when all that says where they lie is equal: k, v, dtype, head_stride, rows,
// row_positions.
void DecodeAttention(const DecodeAttentionArgs& args, ThreadPool* pool, KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_H_
