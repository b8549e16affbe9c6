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
#include "kernels/api/micro_kernel-inl.h"
#include "kernels/api/vector_math-inl.h"
#include "kernels/rope/rotate-inl.h"

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
constexpr size_t kTileKeys = 128;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What a worker needs for one task; pointers into its scratch. "Folded" rows: query rows times group.
struct TaskMemory {
  float* q;        // [folded][head_dim], rotated for the segment, times scale and log2(e)
  float* scores;   // [folded][kTileKeys], then weights
  float* sums;     // [folded][padded_dim]
  float* keys;     // [kTileKeys/32][head_dim][32]: panels for q · kᵀ
  float* values;   // [padded_dim/32][kTileKeys][32]: panels for weights · v
  float* highest;  // [folded]
  float* total;    // [folded]
  size_t padded_dim;
};

TaskMemory Carve(float* memory, size_t folded, size_t head_dim) {
  TaskMemory out;
  out.padded_dim = (head_dim + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  out.q = memory;
  out.scores = out.q + folded * head_dim;
  out.sums = out.scores + folded * kTileKeys;
  out.keys = out.sums + folded * out.padded_dim;
  out.values = out.keys + kTileKeys * head_dim;
  out.highest = out.values + kTileKeys * out.padded_dim;
  out.total = out.highest + folded;
  return out;
}

// The rows of a segment that a tile holds, and where they stand.
struct KeyTile {
  size_t count;
  uint32_t rows[kTileKeys];
  uint32_t positions[kTileKeys];
  // How many keys of the tile, from its start, a query at `position` sees.
  size_t VisibleFrom(uint32_t position) const {
    return std::upper_bound(positions, positions + count, position) - positions;
  }
};

// Walks the visible rows of a segment in order, skipping the replaced ones.
class TileWalker {
 public:
  explicit TileWalker(const KvSegment& segment) : segment_(segment), row_(segment.first_row) {}

  // False when no key at or before `last_position` is left.
  bool Next(uint32_t last_position, KeyTile* tile) {
    tile->count = 0;
    while (tile->count < kTileKeys && row_ < segment_.rows) {
      if (IsReplaced(row_)) {
        ++row_;
        continue;
      }
      const uint32_t at =
          segment_.row_positions != nullptr ? segment_.row_positions[row_] : segment_.position + row_;
      if (at > last_position) break;
      tile->rows[tile->count] = row_;
      tile->positions[tile->count] = at;
      ++tile->count;
      ++row_;
    }
    return tile->count > 0;
  }

 private:
  bool IsReplaced(uint32_t row) {
    if (segment_.replaced == nullptr) return false;
    while (next_ < segment_.replaced_count && segment_.replaced[next_] < row) ++next_;
    return next_ < segment_.replaced_count && segment_.replaced[next_] == row;
  }

  const KvSegment& segment_;
  uint32_t row_;
  uint32_t next_ = 0;
};

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void TransposeFour(const uint32_t* const* rows, size_t word, hn::Vec<DU>* out) {
  for (size_t j = 0; j < 4; ++j) out[j] = hn::LoadU(DU(), rows[0] + word + j);
}
#else
// Four neighbouring words of rows 0, 4, ... block by block, so that a transposition within blocks of four
// puts the rows in order.
HWY_INLINE hn::Vec<DU> LoadBlocks(const uint32_t* const* rows, size_t word) {
  [[maybe_unused]] const hn::Full128<uint32_t> d4;  // narrow targets load plainly
#if HWY_TARGET == HWY_AVX3
  const hn::Full256<uint32_t> d8;
  const auto low = hn::Combine(d8, hn::LoadU(d4, rows[4] + word), hn::LoadU(d4, rows[0] + word));
  const auto high = hn::Combine(d8, hn::LoadU(d4, rows[12] + word), hn::LoadU(d4, rows[8] + word));
  return hn::Combine(DU(), high, low);
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(DU(), hn::LoadU(d4, rows[4] + word), hn::LoadU(d4, rows[0] + word));
#else
  return hn::LoadU(DU(), rows[0] + word);
#endif
}

// out[j] = word `word` + j of rows 0..kLanes-1.
HWY_INLINE void TransposeFour(const uint32_t* const* rows, size_t word, hn::Vec<DU>* out) {
  const hn::Repartition<uint64_t, DU> d64;
  const DU d;
  const auto r0 = LoadBlocks(rows, word);
  const auto r1 = LoadBlocks(rows + 1, word);
  const auto r2 = LoadBlocks(rows + 2, word);
  const auto r3 = LoadBlocks(rows + 3, word);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
  out[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  out[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  out[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  out[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}
#endif

// Where dimension `dim` of keys [first, first + kLanes) goes.
HWY_INLINE float* KeySlot(float* panels, size_t head_dim, size_t first, size_t dim) {
  return panels + (first / kPanelColumns) * head_dim * kPanelColumns + dim * kPanelColumns +
         first % kPanelColumns;
}

// Keys become panels: one row per dimension. Columns past the tile's end hold some earlier row: finite or
// not, nobody reads their scores.
HWY_INLINE void PackKeys(const KvSegment& segment, size_t head_offset, const KeyTile& tile, size_t head_dim,
                         float* panels) {
  const DU d;
  const DF df;
  const bool bf16 = segment.dtype == DType::kBf16;
  const size_t words = bf16 ? head_dim / 2 : head_dim;
  const uint32_t* rows[kLanes];
  for (size_t first = 0; first < tile.count; first += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) {
      const size_t key = std::min(first + i, tile.count - 1);
      const char* base = static_cast<const char*>(segment.k);
      rows[i] = reinterpret_cast<const uint32_t*>(base + (head_offset + size_t{tile.rows[key]} * head_dim) *
                                                             SizeOf(segment.dtype));
    }
    size_t word = 0;
    for (; word + 4 <= words; word += 4) {
      hn::Vec<DU> out[4];
      TransposeFour(rows, word, out);
      for (size_t j = 0; j < 4; ++j) {
        if (bf16) {
          float* to = KeySlot(panels, head_dim, first, 2 * (word + j));
          hn::StoreU(hn::BitCast(df, hn::ShiftLeft<16>(out[j])), df, to);
          hn::StoreU(hn::BitCast(df, hn::And(out[j], hn::Set(d, 0xffff0000u))), df, to + kPanelColumns);
        } else {
          hn::StoreU(hn::BitCast(df, out[j]), df, KeySlot(panels, head_dim, first, word + j));
        }
      }
    }
    for (; word < words; ++word) {
      for (size_t i = 0; i < kLanes; ++i) {
        uint32_t value;
        std::memcpy(&value, rows[i] + word, sizeof(value));
        if (bf16) {
          float* to = KeySlot(panels, head_dim, first, 2 * word) + i;
          to[0] = ToF32(static_cast<Bf16>(value & 0xffffu));
          to[kPanelColumns] = ToF32(static_cast<Bf16>(value >> 16));
        } else {
          std::memcpy(KeySlot(panels, head_dim, first, word) + i, &value, sizeof(value));
        }
      }
    }
  }
}

// Values become panels of 32 dimensions, zero beyond head_dim. Returns whether all are finite.
HWY_INLINE bool PackValues(const KvSegment& segment, size_t head_offset, const KeyTile& tile, size_t head_dim,
                           size_t padded_dim, float* panels) {
  const DF df;
  const DU d;
  const auto infinity = hn::Set(d, 0x7f800000u);
  const hn::Rebind<uint16_t, DU> d16;
  auto bad = hn::Zero(d);
  for (size_t key = 0; key < tile.count; ++key) {
    const size_t at = head_offset + size_t{tile.rows[key]} * head_dim;
    for (size_t dim = 0; dim < padded_dim; dim += kLanes) {
      float* to = panels + (dim / kPanelColumns * kTileKeys + key) * kPanelColumns + dim % kPanelColumns;
      auto value = hn::Zero(df);
      if (dim + kLanes <= head_dim) {
        if (segment.dtype == DType::kF32) {
          value = hn::LoadU(df, static_cast<const float*>(segment.v) + at + dim);
        } else {
          const auto half = hn::LoadU(d16, static_cast<const Bf16*>(segment.v) + at + dim);
          value = hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(d, half)));
        }
      } else if (dim < head_dim) {
        HWY_ALIGN float lanes[kLanes] = {};
        for (size_t i = 0; dim + i < head_dim; ++i) {
          lanes[i] = segment.dtype == DType::kF32 ? static_cast<const float*>(segment.v)[at + dim + i]
                                                  : ToF32(static_cast<const Bf16*>(segment.v)[at + dim + i]);
        }
        value = hn::Load(df, lanes);
      }
      hn::StoreU(value, df, to);
      const auto exponent = hn::And(hn::BitCast(d, value), infinity);
      bad = hn::Or(bad, hn::VecFromMask(d, hn::Eq(exponent, infinity)));
    }
  }
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// Products into rows of plain memory: scores overwrite it, sums of values are added to what is there.
template <bool kAdd>
struct PlainSink {
  float* out;
  size_t out_stride;

  HWY_INLINE PlainSink AtPanel(size_t panel) const { return {out + panel * kPanelColumns, out_stride}; }
  HWY_INLINE PlainSink AtRow(size_t row) const { return {out + row * out_stride, out_stride}; }
  HWY_INLINE void Finish(size_t row, size_t panel, size_t column, VF sum) const {
    float* to = out + row * out_stride + panel * kPanelColumns + column;
    if constexpr (kAdd) sum = hn::Add(hn::LoadU(DF(), to), sum);
    hn::StoreU(sum, DF(), to);
  }
};

// Scores of one row become weights 2^(score - highest); sums so far are corrected for a new highest.
// `visible` keys count; weights of the tile's other keys are zero.
HWY_INLINE void WeightRow(const TaskMemory& memory, size_t row, size_t visible, size_t tile_width) {
  const DF d;
  float* scores = memory.scores + row * kTileKeys;
  const size_t width = (visible + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  auto highest = hn::Set(d, kMinusInfinity);
  const auto minus_infinity = highest;
  for (size_t i = 0; i < width; i += kLanes) {
    auto score = hn::LoadU(d, scores + i);
    if (i + kLanes > visible) {
      const auto mask = hn::FirstN(d, visible > i ? visible - i : 0);
      score = hn::IfThenElse(mask, score, minus_infinity);
      hn::StoreU(score, d, scores + i);
    }
    highest = hn::Max(highest, score);
  }
  const float before = memory.highest[row];
  const float now = std::max(before, hn::GetLane(hn::MaxOfLanes(d, highest)));
  const auto shift = hn::Set(d, now);
  auto total = hn::Zero(d);
  for (size_t i = 0; i < width; i += kLanes) {
    const auto weight = Exp2(hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(weight, d, scores + i);
    total = hn::Add(total, weight);
  }
  for (size_t i = width; i < tile_width; i += kLanes) hn::StoreU(hn::Zero(d), d, scores + i);
  float factor = 1.0f;
  if (!(now == before)) {
    const auto correction = Exp2(hn::Sub(hn::Set(d, before), shift));
    factor = hn::GetLane(correction);
    float* sums = memory.sums + row * memory.padded_dim;
    for (size_t i = 0; i < memory.padded_dim; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), correction), d, sums + i);
    }
  }
  memory.total[row] = memory.total[row] * factor + hn::GetLane(hn::SumOfLanes(d, total));
  memory.highest[row] = now;
}

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

// weights · v for query rows from `first` on, each up to the keys that it sees.
HWY_INLINE void AddTileValues(const Task& task, const KeyTile& tile, size_t first, bool finite,
                              const TaskMemory& memory) {
  const uint32_t* positions = task.args->q_positions;
  size_t step = task.row_end - first;
  if (tile.VisibleFrom(positions[first]) < tile.count) {
    // Some rows see a part of the tile: small groups, each up to what its last row sees. A value that is not
    // finite would spoil a row that gives it a weight of zero, so then every row goes alone.
    step = finite ? std::max(kTileRows / task.group, size_t{1}) : 1;
  }
  for (size_t r = first; r < task.row_end; r += step) {
    const size_t last = std::min(task.row_end, r + step);
    const size_t begin = (r - task.row_begin) * task.group;
    const PlainSink<true> sink{memory.sums + begin * memory.padded_dim, memory.padded_dim};
    MicroBlock((last - r) * task.group, memory.scores + begin * kTileKeys, kTileKeys, memory.values,
               kTileKeys * kPanelColumns, memory.padded_dim / kPanelColumns,
               tile.VisibleFrom(positions[last - 1]), sink);
  }
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
  const size_t begin = (first - task.row_begin) * task.group;
  const size_t end = (task.row_end - task.row_begin) * task.group;
  const PlainSink<false> sink{memory.scores + begin * kTileKeys, kTileKeys};
  const size_t key_panels = (tile.count + kPanelColumns - 1) / kPanelColumns;
  for (size_t panel = 0; panel < key_panels; ++panel) {
    MicroBlock(end - begin, memory.q + begin * args.head_dim, args.head_dim,
               memory.keys + panel * args.head_dim * kPanelColumns, args.head_dim * kPanelColumns, 1,
               args.head_dim, sink.AtPanel(panel));
  }
  for (size_t r = first; r < task.row_end; ++r) {
    const size_t visible = tile.VisibleFrom(args.q_positions[r]);
    for (size_t head = 0; head < task.group; ++head) {
      WeightRow(memory, (r - task.row_begin) * task.group + head, visible, key_panels * kPanelColumns);
    }
  }
  AddTileValues(task, tile, first, finite, memory);
}

HWY_INLINE void WriteOutput(const Task& task, const TaskMemory& memory) {
  const SegmentAttentionArgs& args = *task.args;
  const DF d;
  for (size_t r = task.row_begin; r < task.row_end; ++r) {
    for (size_t head = 0; head < task.group; ++head) {
      const size_t row = (r - task.row_begin) * task.group + head;
      const float* sums = memory.sums + row * memory.padded_dim;
      float* out = args.out + r * args.out_stride + (task.kv_head * task.group + head) * args.head_dim;
      const float total = memory.total[row];
      const bool sees_nothing = memory.highest[row] == kMinusInfinity && total == 0;
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
  const size_t padded = (args.head_dim + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  const size_t floats =
      folded * (args.head_dim + kTileKeys + padded + 2) + kTileKeys * (args.head_dim + padded);
  const TaskMemory memory = Carve(scratch.Get<float>(floats), folded, args.head_dim);
  std::fill_n(memory.sums, folded * padded, 0.0f);
  std::fill_n(memory.highest, folded, kMinusInfinity);
  std::fill_n(memory.total, folded, 0.0f);
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
