// Attention by Highway, in f32 throughout: keys and values of either type are widened, exactly, tile by tile.
//
// A task is one kv head and a tile of query rows; the heads that share the kv head are folded into its rows
// (row = query * group + head). Keys of a segment are taken in tiles of 128 in order, so where a row's
// maximum and sums are corrected depends on the segment only. A row takes part in a tile only when it sees a
// key of it, and keys that it does not see weigh exactly zero: nothing else in the call changes its bytes.
// The last step adds +0, which makes every zero positive.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/api/scratch.h"
#include "kernels/api/simd_targets.h"
#include "kernels/segment_attention/segment_attention_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/segment_attention/segment_attention_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/rope/rotate-inl.h"
#include "kernels/segment_attention/attention_tile-inl.h"

#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CPU_ONCE_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CPU_ONCE_
namespace epic::internal {

// Query rows [row_begin, row_end) with the heads of one kv head.
struct AttentionTask {
  const SegmentAttentionArgs* args;
  uint32_t kv_head;
  size_t row_begin;
  size_t row_end;
  size_t group;  // heads that share the kv head
};

}  // namespace epic::internal
#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CPU_ONCE_

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

using Task = internal::AttentionTask;

// Query rows that go through a whole tile together: their scores stay in the first-level cache.
constexpr size_t kBlockRows = 16;

HWY_INLINE size_t FirstRowAt(const Task& task, uint32_t position) {
  const uint32_t* positions = task.args->q_positions;
  return std::lower_bound(positions + task.row_begin, positions + task.row_end, position) - positions;
}

HWY_INLINE void RotateQueries(const Task& task, const KvSegment& segment, size_t first_row,
                              const TaskMemory& memory) {
  const SegmentAttentionArgs& args = *task.args;
  const float scale = args.scale * 1.44269504088896340736f;
  for (size_t r = first_row; r < task.row_end; ++r) {
    const uint32_t at = args.q_positions[r];
    const uint32_t turn =
        segment.row_positions != nullptr ? at : at - segment.position + segment.stored_position;
    const float* q = args.q + r * args.q_stride + task.kv_head * task.group * args.head_dim;
    float* out = memory.q + (r - task.row_begin) * task.group * args.head_dim;
    for (size_t head = 0; head < task.group; ++head) {
      RotateScaled(*args.rope, turn, scale, q + head * args.head_dim, out + head * args.head_dim);
    }
  }
}

// Query rows [begin, end) of a task, and how many keys of a tile its first and its last row see.
struct RowBlock {
  size_t begin;
  size_t end;
  size_t first_visible;
  size_t visible;
};

// q · k, weights, weights · v for rows that all see some key of the tile.
HWY_INLINE void AttendRows(const Task& task, const KeyTile& tile, const RowBlock& rows,
                           const TaskMemory& memory) {
  const SegmentAttentionArgs& args = *task.args;
  const size_t begin = (rows.begin - task.row_begin) * task.group;
  const size_t folded = (rows.end - rows.begin) * task.group;
  const size_t key_panels = (rows.visible + kPanelColumns - 1) / kPanelColumns;
  MicroBlock(folded, memory.q + begin * args.head_dim, args.head_dim, memory.keys,
             args.head_dim * kPanelColumns, key_panels, args.head_dim,
             PlainSink<false>{memory.scores + begin * kTileKeys, kTileKeys});
  size_t visible = rows.first_visible;
  for (size_t r = rows.begin; r < rows.end; ++r) {
    while (visible < rows.visible && tile.positions[visible] <= args.q_positions[r]) ++visible;
    for (size_t head = 0; head < task.group; ++head) {
      WeightRow(memory, (r - task.row_begin) * task.group + head, visible, key_panels * kPanelColumns);
    }
  }
  MicroBlock(folded, memory.scores + begin * kTileKeys, kTileKeys, memory.values, kTileKeys * kPanelColumns,
             memory.padded_dim / kPanelColumns, rows.visible,
             PlainSink<true>{memory.sums + begin * memory.padded_dim, memory.padded_dim});
}

HWY_INLINE void AttendTile(const Task& task, const KvSegment& segment, const KeyTile& tile,
                           const TaskMemory& memory) {
  const SegmentAttentionArgs& args = *task.args;
  const size_t head_offset = task.kv_head * segment.head_stride;
  // Positions ascend: the rows that see anything of the tile are the last ones.
  const size_t first = FirstRowAt(task, tile.positions[0]);
  if (first == task.row_end) return;
  PackKeys(segment, head_offset, tile, args.head_dim, memory.keys);
  const bool finite = PackValues(segment, head_offset, tile, args.head_dim, memory.padded_dim, memory.values);
  // Rows that see a part of the tile go in small blocks, each up to what its last row sees; a value that is
  // not finite would spoil a row that gives it a weight of zero, so then every row goes alone.
  const size_t partial = finite ? (kTileRows + task.group - 1) / task.group : 1;
  const size_t whole = FirstRowAt(task, tile.positions[tile.count - 1]);
  for (size_t r = first; r < whole; r += partial) {
    const size_t end = std::min(whole, r + partial);
    AttendRows(task, tile,
               {r, end, tile.VisibleFrom(args.q_positions[r]), tile.VisibleFrom(args.q_positions[end - 1])},
               memory);
  }
  for (size_t r = whole; r < task.row_end; r += kBlockRows) {
    AttendRows(task, tile, {r, std::min(task.row_end, r + kBlockRows), tile.count, tile.count}, memory);
  }
}

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

void AttendTask(const Task& task) {
  static thread_local Scratch scratch;
  const SegmentAttentionArgs& args = *task.args;
  const size_t folded = (task.row_end - task.row_begin) * task.group;
  const TaskMemory memory =
      Carve(scratch.Get<float>(TaskFloats(folded, args.head_dim)), folded, args.head_dim);
  const uint32_t last_position = args.q_positions[task.row_end - 1];
  KeyTile tile;
  for (const KvSegment& segment : args.segments) {
    TileWalker walker(segment);
    if (!walker.Next(last_position, &tile)) continue;
    RotateQueries(task, segment, FirstRowAt(task, tile.positions[0]), memory);
    do {
      AttendTile(task, segment, tile, memory);
    } while (walker.Next(last_position, &tile));
  }
  WriteOutput(task, memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(AttendTask);

namespace internal {
namespace {

constexpr size_t kFoldedRows = 192;  // of one task: with a tile of keys and values in the second-level cache
constexpr size_t kTasksPerThread = 6;  // enough to even out causal tiles and disturbed threads
constexpr size_t kFewestFolded = 24;   // below, packing a tile costs as much as using it

// Query rows of one task. Only speed depends on it.
size_t RowsPerTask(const SegmentAttentionArgs& args, size_t threads) {
  const size_t group = args.heads / args.kv_heads;
  const size_t most = std::max(kFoldedRows / group, size_t{1});
  const size_t fewest = std::min(std::max(kFewestFolded / group, size_t{1}), most);
  if (threads == 1) return most;
  const size_t tiles = std::max(threads * kTasksPerThread / args.kv_heads, size_t{1});
  return std::clamp((args.rows + tiles - 1) / tiles, fewest, most);
}

}  // namespace

void SegmentAttentionCpu(const SegmentAttentionArgs& args, ThreadPool* pool) {
  const size_t rows_per_task = RowsPerTask(args, pool == nullptr ? 1 : pool->threads());
  const size_t row_tiles = (args.rows + rows_per_task - 1) / rows_per_task;
  // The last rows see the most keys, and the pool takes the highest index first.
  ForRowBlocks(pool, row_tiles * args.kv_heads, 1, [&](size_t begin, size_t end) {
    for (size_t index = begin; index < end; ++index) {
      const size_t first = index / args.kv_heads * rows_per_task;
      const AttentionTask task{&args, static_cast<uint32_t>(index % args.kv_heads), first,
                               std::min(args.rows, first + rows_per_task), args.heads / args.kv_heads};
      HWY_DYNAMIC_DISPATCH(AttendTask)(task);
    }
  });
}

}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
