// The query rows of a task: which see a key, how far they turn for a segment, and what is written of them in
// the end. Included once per SIMD target by Highway's foreach_target.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/segment_attention/segment_attention_internal.h"

#if defined(EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_ROWS_INL_H_
#undef EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_ROWS_INL_H_
#else
#define EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_ROWS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/segment_attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

using Task = internal::AttentionTask;

// The first row of the task at or behind a position: positions ascend.
HWY_INLINE size_t FirstRowAt(const Task& task, uint32_t position) {
  const uint32_t* positions = task.args->q_positions;
  return std::lower_bound(positions + task.row_begin, positions + task.row_end, position) - positions;
}

// The position by which a query at `at` is rotated for a segment.
HWY_INLINE uint32_t TurnOf(const KvSegment& segment, uint32_t at) {
  return segment.row_positions != nullptr ? at : at - segment.position + segment.stored_position;
}

// The last step adds +0, which makes every zero positive.
HWY_INLINE void WriteOutput(const Task& task, const TaskMemory& memory) {
  const SegmentAttentionArgs& args = *task.args;
  const DF d;
  for (size_t r = task.row_begin; r < task.row_end; ++r) {
    for (size_t head = 0; head < task.group; ++head) {
      const size_t row = (r - task.row_begin) * task.group + head;
      const float* sums = memory.sums + row * memory.padded_dim;
      float* out = args.out + r * args.out_stride + (task.kv_head * task.group + head) * args.head_dim;
      const float total = TotalOf(memory, row);
      const bool sees_nothing = memory.shift[row] == kMinusInfinity && total == 0;
      const auto factor = hn::Set(d, sees_nothing ? 0.0f : 1.0f / total);
      size_t i = 0;
      for (; i + kLanes <= args.head_dim; i += kLanes) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d, sums + i), factor, hn::Zero(d)), d, out + i);
      }
      for (; i < args.head_dim; ++i) out[i] = sums[i] * hn::GetLane(factor) + 0.0f;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_ROWS_INL_H_
