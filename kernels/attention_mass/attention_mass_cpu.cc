// Sums of attention weights by Highway, in f32 up to the rounding to units.
//
// Two passes over the keys, each of its own tasks: rows' highest scores and sums (a kv head and a tile of
// rows), then weights (a kv head and a block of keys), where every sum has one writer. The heads that share a
// kv head are folded into rows, as in segment attention: row = query * group + head.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/api/scratch.h"
#include "kernels/api/simd_targets.h"
#include "kernels/attention_mass/attention_mass_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_mass/attention_mass_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/rope/rotate-inl.h"
#include "kernels/segment_attention/attention_tile-inl.h"

#ifndef EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_CPU_ONCE_
#define EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_CPU_ONCE_
namespace epic::internal {

constexpr size_t kMassTileRows = 64;  // so many weights of 2^24 units fit into 31 bits

// Of each row and head: how its scores become weights. weight = 2^(score - highest) * factor, in units.
// Shape of both: [rows][heads]. A factor of 0: the row sees nothing, or not numbers.
struct RowWeights {
  std::vector<float> highest, factor;
};

// Rows [row_begin, row_end) with the heads of one kv head.
struct NormalizeTask {
  const SegmentAttentionArgs* args;
  std::span<const KvSegment> segments;
  uint32_t kv_head;
  size_t row_begin, row_end;
  RowWeights* out;
};

// All rows over rows [key_begin, key_end) of one segment.
struct SumTask {
  const SegmentAttentionArgs* args;
  const KvSegment* segment;
  uint32_t kv_head;
  uint32_t key_begin, key_end;
  const RowWeights* weights;
  const KvSegment* fresh;           // of AttentionChange, else null
  const RowWeights* fresh_weights;  // likewise
  uint64_t* out;                    // by position; of the kv head's first head
  size_t out_stride;                // from one head to the next; 0: heads are added up
};

}  // namespace epic::internal
#endif  // EPIC_KERNELS_ATTENTION_MASS_ATTENTION_MASS_CPU_ONCE_

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {
namespace {

// A tile of rows with the heads of one kv head: what scoring keys against them needs. Memory: a worker's
// scratch.
struct RowTile {
  const SegmentAttentionArgs* args;
  uint32_t kv_head;
  size_t begin, end;
  size_t group;
  float* q;       // [folded][dim], rotated for a segment, times scale and log2(e)
  float* scores;  // [folded][kTileKeys]
  float* keys;    // [kTileKeys / 32][dim][32]

  static size_t Floats(size_t rows, size_t group, size_t dim) {
    return rows * group * (dim + kTileKeys) + kTileKeys * dim;
  }
  RowTile(const SegmentAttentionArgs& a, uint32_t head, size_t row_begin, size_t row_end, float* memory)
      : args(&a), kv_head(head), begin(row_begin), end(row_end), group(a.heads / a.kv_heads) {
    const size_t folded = (end - begin) * group;
    q = memory;
    scores = q + folded * args->head_dim;
    keys = scores + folded * kTileKeys;
  }

  uint32_t last_position() const { return args->q_positions[end - 1]; }
  // The first row at or behind `position`: positions ascend.
  size_t FirstRowAt(uint32_t position) const {
    const uint32_t* positions = args->q_positions;
    return static_cast<size_t>(std::lower_bound(positions + begin, positions + end, position) - positions);
  }

  // REQUIRES: the rows from `first` on see some key of the segment.
  void Rotate(const KvSegment& segment, size_t first) const {
    const size_t dim = args->head_dim;
    const float scale = args->scale * 1.44269504088896340736f;
    for (size_t r = first; r < end; ++r) {
      const uint32_t at = args->q_positions[r];
      const uint32_t turn =
          segment.row_positions != nullptr ? at : at - segment.position + segment.stored_position;
      const float* in = args->q + r * args->q_stride + kv_head * group * dim;
      float* out = q + (r - begin) * group * dim;
      for (size_t head = 0; head < group; ++head) {
        RotateScaled(*args->rope, turn, scale, in + head * dim, out + head * dim);
      }
    }
  }

  // Scores of a tile of keys for the rows from `first` on, at scores.
  void Score(const KvSegment& segment, const KeyTile& tile, size_t first) const {
    const size_t dim = args->head_dim;
    PackKeys(segment, kv_head * segment.head_stride, tile, dim, keys);
    const size_t folded = (first - begin) * group;
    MicroBlock((end - first) * group, q + folded * dim, dim, keys, dim * kPanelColumns,
               (tile.count + kPanelColumns - 1) / kPanelColumns, dim,
               PlainSink<false>{scores + folded * kTileKeys, kTileKeys});
  }
  const float* ScoresOf(size_t row, size_t head) const {
    return scores + ((row - begin) * group + head) * kTileKeys;
  }
};

float* ScratchFloats(size_t floats) {
  static thread_local Scratch scratch;
  return scratch.Get<float>(floats);
}

// Takes `visible` scores into a row's highest score and sum of 2^(score - highest).
HWY_INLINE void UpdateSum(const float* scores, size_t visible, float* highest, float* total) {
  const DF d;
  const auto minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto top = minus_infinity;
  for (size_t i = 0; i < visible; i += kLanes) {
    const auto mask = hn::FirstN(d, visible - i);
    top = hn::Max(top, hn::IfThenElse(mask, hn::LoadU(d, scores + i), minus_infinity));
  }
  const float now = std::max(*highest, hn::GetLane(hn::MaxOfLanes(d, top)));
  const auto shift = hn::Set(d, now);
  auto sum = hn::Zero(d);
  for (size_t i = 0; i < visible; i += kLanes) {
    const auto weight = Exp2(hn::Sub(hn::LoadU(d, scores + i), shift));
    sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, visible - i), weight));
  }
  const float before = hn::GetLane(Exp2(hn::Sub(hn::Set(d, *highest), shift)));
  *total = (*total > 0 ? *total * before : *total) + hn::GetLane(hn::SumOfLanes(d, sum));
  *highest = now;
}

void Normalize(const internal::NormalizeTask& task) {
  const SegmentAttentionArgs& args = *task.args;
  const size_t group = args.heads / args.kv_heads;
  const size_t rows = task.row_end - task.row_begin;
  const RowTile tile(args, task.kv_head, task.row_begin, task.row_end,
                     ScratchFloats(RowTile::Floats(rows, group, args.head_dim)));
  const auto at = [&](size_t row, size_t head) { return row * args.heads + task.kv_head * group + head; };
  std::vector<float>& highest = task.out->highest;
  std::vector<float>& total = task.out->factor;
  KeyTile keys;
  for (const KvSegment& segment : task.segments) {
    TileWalker walker(segment);
    for (bool rotated = false; walker.Next(tile.last_position(), &keys); rotated = true) {
      const size_t first = tile.FirstRowAt(keys.positions[0]);
      if (first == tile.end) break;
      if (!rotated) tile.Rotate(segment, first);
      tile.Score(segment, keys, first);
      for (size_t r = first; r < tile.end; ++r) {
        const size_t visible = keys.VisibleFrom(args.q_positions[r]);
        for (size_t head = 0; head < group; ++head) {
          UpdateSum(tile.ScoresOf(r, head), visible, &highest[at(r, head)], &total[at(r, head)]);
        }
      }
    }
  }
}

// Weights, in units, of the kLanes keys at `scores`.
HWY_INLINE VF WeightsAt(const float* scores, float highest, float factor) {
  const DF d;
  return hn::Mul(Exp2(hn::Sub(hn::LoadU(d, scores), hn::Set(d, highest))), hn::Set(d, factor));
}

struct RowScores {
  const float* scores;
  float highest, factor;
};

// Adds the units of `visible` keys to sums; where `fresh` is not null, the units of their change.
HWY_INLINE void AddUnits(const RowScores& row, const RowScores* fresh, size_t visible, int32_t* sums) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  for (size_t i = 0; i < visible; i += kLanes) {
    auto weight = WeightsAt(row.scores + i, row.highest, row.factor);
    if (fresh != nullptr) {
      weight = hn::Abs(hn::Sub(WeightsAt(fresh->scores + i, fresh->highest, fresh->factor), weight));
    }
    weight = hn::IfThenElseZero(hn::FirstN(d, visible - i), weight);
    hn::Store(hn::Add(hn::Load(di, sums + i), hn::NearestInt(weight)), di, sums + i);
  }
}

// Sums of one tile of rows over one tile of keys, by head, into task.out.
HWY_INLINE void AddTile(const internal::SumTask& task, const RowTile& tile, const RowTile* fresh,
                        const KeyTile& keys, size_t first) {
  const SegmentAttentionArgs& args = *task.args;
  HWY_ALIGN int32_t sums[kTileKeys];
  for (size_t head = 0; head < tile.group; ++head) {
    std::fill_n(sums, kTileKeys, 0);
    for (size_t r = first; r < tile.end; ++r) {
      const size_t at = r * args.heads + task.kv_head * tile.group + head;
      const RowScores stored{tile.ScoresOf(r, head), task.weights->highest[at], task.weights->factor[at]};
      if (stored.factor == 0) continue;
      const size_t visible = keys.VisibleFrom(args.q_positions[r]);
      if (fresh == nullptr) {
        AddUnits(stored, nullptr, visible, sums);
        continue;
      }
      const RowScores other{fresh->ScoresOf(r, head), task.fresh_weights->highest[at],
                            task.fresh_weights->factor[at]};
      if (other.factor != 0) AddUnits(stored, &other, visible, sums);
    }
    uint64_t* out = task.out + head * task.out_stride;
    for (size_t i = 0; i < keys.count; ++i) out[keys.positions[i]] += static_cast<uint64_t>(sums[i]);
  }
}

void Sum(const internal::SumTask& task) {
  const SegmentAttentionArgs& args = *task.args;
  const size_t group = args.heads / args.kv_heads;
  const size_t floats = RowTile::Floats(internal::kMassTileRows, group, args.head_dim);
  float* memory = ScratchFloats((task.fresh != nullptr ? 2 : 1) * floats);
  KeyTile keys;
  for (size_t begin = 0; begin < args.rows; begin += internal::kMassTileRows) {
    const size_t end = std::min(args.rows, begin + internal::kMassTileRows);
    const RowTile tile(args, task.kv_head, begin, end, memory);
    const RowTile fresh(args, task.kv_head, begin, end, memory + (task.fresh != nullptr ? floats : 0));
    TileWalker walker(*task.segment, task.key_begin, task.key_end);
    for (bool rotated = false; walker.Next(tile.last_position(), &keys); rotated = true) {
      const size_t first = tile.FirstRowAt(keys.positions[0]);
      if (first == end) break;
      if (!rotated) tile.Rotate(*task.segment, first);
      tile.Score(*task.segment, keys, first);
      if (task.fresh != nullptr) {
        if (!rotated) fresh.Rotate(*task.fresh, first);
        KeyTile moved = keys;  // row r of the fresh segment stands at position r
        std::copy_n(keys.positions, keys.count, moved.rows);
        fresh.Score(*task.fresh, moved, first);
      }
      AddTile(task, tile, task.fresh != nullptr ? &fresh : nullptr, keys, first);
    }
  }
}

}  // namespace

void NormalizeMassTask(const internal::NormalizeTask& task) { Normalize(task); }
void SumMassTask(const internal::SumTask& task) { Sum(task); }

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(NormalizeMassTask);
HWY_EXPORT(SumMassTask);

namespace internal {
namespace {

constexpr uint32_t kBlockKeys = 512;  // of one task of the second pass
constexpr size_t kFewestFolded = 24;  // of the first pass: below, packing keys costs more than using them
constexpr size_t kFirstTasksPerThread = 3;

// Rows of one task of the first pass. Only speed depends on it.
size_t RowsPerTask(const SegmentAttentionArgs& args, size_t threads) {
  const size_t fewest = std::max(kFewestFolded / (args.heads / args.kv_heads), size_t{1});
  const size_t tiles = std::max(threads * kFirstTasksPerThread / args.kv_heads, size_t{1});
  return std::clamp((args.rows + tiles - 1) / tiles, std::min(fewest, kMassTileRows), kMassTileRows);
}

// The first pass. False when a row's sum is not a number.
bool NormalizeRows(const SegmentAttentionArgs& args, std::span<const KvSegment> segments, ThreadPool* pool,
                   RowWeights* out) {
  const size_t count = args.rows * args.heads;
  out->highest.assign(count, -std::numeric_limits<float>::infinity());
  out->factor.assign(count, 0.0f);
  const size_t per_task = RowsPerTask(args, pool == nullptr ? 1 : pool->threads());
  const size_t tiles = (args.rows + per_task - 1) / per_task;
  ForRowBlocks(pool, tiles * args.kv_heads, 1, [&](size_t begin, size_t end) {
    for (size_t index = begin; index < end; ++index) {
      const size_t first = index / args.kv_heads * per_task;
      const NormalizeTask task{&args,
                               segments,
                               static_cast<uint32_t>(index % args.kv_heads),
                               first,
                               std::min(args.rows, first + per_task),
                               out};
      HWY_DYNAMIC_DISPATCH(NormalizeMassTask)(task);
    }
  });
  bool finite = true;
  for (float& total : out->factor) {
    const bool is_number = std::isfinite(total);
    finite = finite && is_number;
    total = is_number && total > 0 ? static_cast<float>(1 / kAttentionMassUnit) / total : 0.0f;
  }
  return finite;
}

// The second pass: `base` over all blocks of keys of its segments and all kv heads.
void SumBlocks(const SumTask& base, std::span<const KvSegment> segments, bool shared_only, ThreadPool* pool) {
  std::vector<SumTask> blocks;
  for (const KvSegment& segment : segments) {
    if (shared_only && segment.row_positions != nullptr) continue;
    for (uint32_t key = segment.first_row; key < segment.rows; key += kBlockKeys) {
      SumTask task = base;
      task.segment = &segment;
      task.key_begin = key;
      task.key_end = std::min(segment.rows, key + kBlockKeys);
      blocks.push_back(task);
    }
  }
  // Heads that are added up have one writer: its task takes all kv heads of its keys.
  const uint32_t kv_heads = base.args->kv_heads;
  const size_t heads_per_task = base.out_stride == 0 ? kv_heads : 1;
  const size_t tasks = blocks.size() * kv_heads / heads_per_task;
  const size_t group = base.args->heads / kv_heads;
  ForRowBlocks(pool, tasks, 1, [&](size_t begin, size_t end) {
    for (size_t index = begin * heads_per_task; index < end * heads_per_task; ++index) {
      SumTask task = blocks[index / kv_heads];
      task.kv_head = static_cast<uint32_t>(index % kv_heads);
      task.out = base.out + task.kv_head * group * base.out_stride;
      HWY_DYNAMIC_DISPATCH(SumMassTask)(task);
    }
  });
}

}  // namespace

bool AttentionMassCpu(const AttentionMassArgs& args, ThreadPool* pool) {
  RowWeights weights;
  const bool finite = NormalizeRows(args.attention, args.attention.segments, pool, &weights);
  const SumTask base{.args = &args.attention,
                     .segment = nullptr,
                     .kv_head = 0,
                     .key_begin = 0,
                     .key_end = 0,
                     .weights = &weights,
                     .fresh = nullptr,
                     .fresh_weights = nullptr,
                     .out = args.mass,
                     .out_stride = args.mass_stride};
  SumBlocks(base, args.attention.segments, /*shared_only=*/false, pool);
  return finite;
}

bool AttentionChangeCpu(const AttentionChangeArgs& args, ThreadPool* pool) {
  RowWeights fresh, stored;
  const bool fresh_finite = NormalizeRows(args.fresh, args.fresh.segments, pool, &fresh);
  const bool stored_finite = NormalizeRows(args.fresh, args.stored, pool, &stored);
  const SumTask base{.args = &args.fresh,
                     .segment = nullptr,
                     .kv_head = 0,
                     .key_begin = 0,
                     .key_end = 0,
                     .weights = &stored,
                     .fresh = &args.fresh.segments[0],
                     .fresh_weights = &fresh,
                     .out = args.change,
                     .out_stride = 0};
  SumBlocks(base, args.stored, /*shared_only=*/true, pool);
  return fresh_finite && stored_finite;
}

}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
