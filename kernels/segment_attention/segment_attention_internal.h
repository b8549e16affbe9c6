// The implementations behind segment_attention.h: each does the whole call and splits it over the pool. Only
// segment_attention.cc and the tests of this folder look here; it has checked the arguments.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_INTERNAL_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_INTERNAL_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/segment_attention/segment_attention.h"
#include "kernels/segment_attention/tile_unit.h"

namespace epic::internal {

// Two passes over all visible keys, in double.
void SegmentAttentionReference(const SegmentAttentionArgs& args, ThreadPool* pool);

// Tiles by Highway, online softmax in f32.
void SegmentAttentionCpu(const SegmentAttentionArgs& args, ThreadPool* pool);

// Products by a tile unit in bf16, online softmax in f32. REQUIRES: every segment with rows is bf16.
void SegmentAttentionTiles(const SegmentAttentionArgs& args, ThreadPool* pool, const TileUnit& unit);

// Query rows [row_begin, row_end) with the heads of one kv head, which are folded into rows: row = query *
// group + head.
struct AttentionTask {
  const SegmentAttentionArgs* args;
  uint32_t kv_head;
  size_t row_begin;
  size_t row_end;
  size_t group;  // heads that share the kv head
};

// Folded rows of one task, as far as the call has so many. Only speed depends on it.
struct TaskSize {
  size_t fewest;
  size_t most;
};

// Runs all tasks of a call, each once.
void ForAttentionTasks(const SegmentAttentionArgs& args, ThreadPool* pool, const TaskSize& size,
                       const std::function<void(const AttentionTask&)>& run);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_INTERNAL_H_
