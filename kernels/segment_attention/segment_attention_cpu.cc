// Attention by Highway, in f32 throughout: keys and values of either type are widened, exactly, tile by tile.
//
// A task is one kv head and a tile of query rows; the heads that share the kv head are folded into its rows
// (row = query * group + head). Keys of a segment are taken in tiles of 128 in order, so where a row's shift
// and sums are corrected depends on the segment and the row only. A row takes part in a tile only when it
// sees a key of it, and keys that it does not see weigh exactly zero: nothing else in the call changes its
// bytes.
#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "common/base/check.h"
#include "kernels/api/scratch.h"
#include "kernels/api/simd_targets.h"
#include "kernels/segment_attention/segment_attention_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/segment_attention/segment_attention_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/rope/rotate-inl.h"
#include "kernels/segment_attention/attention_rows-inl.h"
#include "kernels/segment_attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

// Query rows that go through a whole tile together: their scores stay in the first-level cache.
constexpr size_t kBlockRows = 16;

HWY_INLINE void RotateQueries(const Task& task, const KvSegment& segment, size_t first_row,
                              const TaskMemory& memory) {
  const SegmentAttentionArgs& args = *task.args;
  const float scale = args.scale * 1.44269504088896340736f;
  for (size_t r = first_row; r < task.row_end; ++r) {
    const uint32_t turn = TurnOf(segment, args.q_positions[r]);
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

// At most what lies with a tile of keys and values in the second-level cache; at least as many that packing a
// tile does not cost as much as using it.
constexpr TaskSize kTaskSize = {.fewest = 24, .most = 192};

}  // namespace

void SegmentAttentionCpu(const SegmentAttentionArgs& args, ThreadPool* pool) {
  ForAttentionTasks(args, pool, kTaskSize, [](const AttentionTask& task) {
    HWY_DYNAMIC_DISPATCH(AttendTask)(task);
  });
}

}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
