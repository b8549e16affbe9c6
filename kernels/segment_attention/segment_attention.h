// Attention of a few rows of one sequence over its segment list: shared segments (KV objects that nobody
// rewrites) and the sequence's private segment, causal by absolute position, online softmax.
//
// A key of a shared segment is stored rotated at stored_position + row. It stands in this prompt at
// position + row, so the query at absolute position p is rotated, for that segment, by
// p - position + stored_position: the query turns once per segment, the object is never rewritten.
// Each query row's arithmetic is the same whatever other rows share the call, and whatever the threads.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/api/dispatch.h"
#include "kernels/api/dtype.h"
#include "kernels/api/thread_pool.h"
#include "kernels/rope/rope.h"

namespace epic {

// One source of keys and values, of one layer.
struct KvSegment {
  const void* k = nullptr;  // [kv_heads][head_stride/head_dim rows][head_dim]
  const void* v = nullptr;  // the same shape
  size_t head_stride = 0;   // elements from one kv head to the next
  DType dtype = DType::kBf16;
  uint32_t rows = 0;       // rows that hold data
  uint32_t first_row = 0;  // rows before it are replaced and hidden: never read
  // Further replaced rows, ascending, all >= first_row; hidden as well. Null when there are none.
  const uint32_t* replaced = nullptr;
  uint32_t replaced_count = 0;
  // Shared segment: row r stands at absolute position `position` + r. Ignored when row_positions is set.
  uint32_t position = 0;
  uint32_t stored_position = 0;  // position at which row 0's key was rotated
  // Private segment: absolute position of every row, ascending; keys rotated at those. Null for a shared
  // segment.
  const uint32_t* row_positions = nullptr;
};

struct SegmentAttentionArgs {
  const float* q = nullptr;               // [rows][q_stride]; heads*head_dim per row, not rotated
  size_t q_stride = 0;                    // elements
  const uint32_t* q_positions = nullptr;  // [rows], ascending
  size_t rows = 0;
  uint32_t heads = 0;                   // H; heads % kv_heads == 0; head h reads kv head h / (H/G)
  uint32_t kv_heads = 0;                // G
  uint32_t head_dim = 0;                // D, a multiple of 2
  float scale = 0;                      // 1/sqrt(head_dim)
  std::span<const KvSegment> segments;  // in order of position; reduced in this order
  const RopeTable* rope = nullptr;
  // kBf16 lets a CPU with matrix tiles round rotated queries and weights to bf16, where all segments are
  // bf16; sums, scores and exponentials are f32 everywhere. The same for all calls whose rows are compared.
  DType arithmetic = DType::kF32;
  float* out = nullptr;   // [rows][out_stride]; a row that sees nothing gets zeros
  size_t out_stride = 0;  // elements
};

// A row sees the keys whose absolute position is <= its own.
void SegmentAttention(const SegmentAttentionArgs& args, ThreadPool* pool,
                      KernelPath path = KernelPath::kAuto);

// Each call as SegmentAttention does it alone, byte for byte. Small ones, of many short sequences, are shared
// out among the threads whole: each packs its keys and values once.
void SegmentAttentionOfEach(std::span<const SegmentAttentionArgs> calls, ThreadPool* pool,
                            KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_H_
