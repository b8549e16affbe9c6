// Attention with both products on matrix tiles: bf16 queries, keys, weights and values, sums in f32.
// Everything but the products is Highway's, in f32.
//
// Tasks, folded rows and tiles of 128 keys are those of segment_attention_cpu.cc. Rows go in blocks of 32
// (two tiles of rows), each up to the keys that its last row sees, in steps of 32 keys. A step of keys that a
// row does not see adds zero to its sums and leaves their bytes: what would change, a subnormal sum, a unit
// never leaves behind, and a shift moves only where a step follows.
#include <algorithm>
#include <cstring>

#include "kernels/api/scratch.h"
#include "kernels/api/simd_targets.h"
#include "kernels/convert/convert.h"
#include "kernels/segment_attention/segment_attention_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/segment_attention/segment_attention_tiles.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/rope/rotate-inl.h"
#include "kernels/segment_attention/attention_rows-inl.h"
#include "kernels/segment_attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

using internal::kTileElements;
using internal::kTileSide;
using internal::kTileSteps;
using internal::TileProduct;
using internal::TileUnit;

constexpr size_t kBlockFolded = 2 * kTileSide;
constexpr size_t kKeySteps = kTileKeys / kTileSteps;  // tiles of values along the keys
// Words of two bf16 in a row of a packed tile.
constexpr size_t kTileWords = kTileSide;

constexpr size_t RoundUp(size_t count, size_t step) { return (count + step - 1) / step * step; }

// A task and its memory, in a worker's scratch.
struct TileTask {
  const Task& task;
  const TileUnit& unit;
  TaskMemory memory;  // sums, totals and shift of folded rows, padded to a whole tile; scores of one block
  Bf16* q;        // [folded][k_dim], rotated for the segment, times scale and log2(e); zero beyond head_dim
  Bf16* weights;  // [kBlockFolded][kTileKeys]; keys i and i + 16 of each 32 side by side
  Bf16* keys;     // tiles [kTileKeys / 16][k_dim / 32]
  Bf16* values;   // tiles [padded_dim / 16][kKeySteps]; pairs are keys i and i + 16 of each 32
  float* turned;  // [head_dim]
  size_t folded;
  size_t k_dim;  // head_dim in whole tiles

  size_t group() const { return task.group; }
  size_t QueryOf(size_t row) const { return task.row_begin + row / task.group; }
};

inline TileTask MakeTileTask(const Task& task, const TileUnit& unit) {
  static thread_local Scratch floats, halves;
  const size_t head_dim = task.args->head_dim;
  const size_t folded = (task.row_end - task.row_begin) * task.group;
  const size_t rows = RoundUp(folded, kTileSide);
  const size_t k_dim = RoundUp(head_dim, kTileSteps);
  TaskMemory memory = {};
  memory.padded_dim = PaddedDim(head_dim);
  memory.scores =
      floats.Get<float>(kBlockFolded * kTileKeys + rows * (memory.padded_dim + kTotals + 1) + head_dim);
  memory.sums = memory.scores + kBlockFolded * kTileKeys;
  memory.totals = memory.sums + rows * memory.padded_dim;
  memory.shift = memory.totals + rows * kTotals;
  std::fill(memory.sums, memory.shift, 0.0f);
  std::fill_n(memory.shift, rows, kMinusInfinity);
  Bf16* q = halves.Get<Bf16>(rows * k_dim + kTileKeys * (kBlockFolded + k_dim + memory.padded_dim));
  Bf16* weights = q + rows * k_dim;
  Bf16* keys = weights + kBlockFolded * kTileKeys;
  std::fill(q, keys + kTileKeys * (k_dim + memory.padded_dim), Bf16{0});
  return {task, unit, memory, q, weights, keys, keys + kTileKeys * k_dim, memory.shift + rows, folded, k_dim};
}

HWY_INLINE void RotateQueries(const TileTask& t, const KvSegment& segment, size_t first_row) {
  const SegmentAttentionArgs& args = *t.task.args;
  const float scale = args.scale * 1.44269504088896340736f;
  for (size_t r = first_row; r < t.task.row_end; ++r) {
    const uint32_t turn = TurnOf(segment, args.q_positions[r]);
    const float* q = args.q + r * args.q_stride + t.task.kv_head * t.group() * args.head_dim;
    for (size_t head = 0; head < t.group(); ++head) {
      RotateScaled(*args.rope, turn, scale, q + head * args.head_dim, t.turned);
      F32ToBf16(t.turned, t.q + ((r - t.task.row_begin) * t.group() + head) * t.k_dim, args.head_dim);
    }
  }
}

// Keys become tiles of 16 keys by 32 dimensions: a word of two dimensions is a row. Columns past the tile's
// end hold some key: nobody reads their scores.
HWY_INLINE void PackKeyTiles(const TileTask& t, const KvSegment& segment, const KeyTile& tile) {
  const DU d;
  const size_t head_dim = t.task.args->head_dim;
  const size_t words = head_dim / 2;
  const Bf16* base = static_cast<const Bf16*>(segment.k) + t.task.kv_head * segment.head_stride;
  const uint32_t* rows[kLanes];
  for (size_t first = 0; first < tile.count; first += kLanes) {
    for (size_t i = 0; i < kLanes; ++i) {
      const size_t key = std::min(first + i, tile.count - 1);
      rows[i] = reinterpret_cast<const uint32_t*>(base + size_t{tile.rows[key]} * head_dim);
    }
    auto* out =
        reinterpret_cast<uint32_t*>(t.keys + first / kTileSide * t.k_dim * kTileSide) + first % kTileSide;
    size_t word = 0;
    for (; word + 4 <= words; word += 4) {
      hn::Vec<DU> four[4];
      TransposeFour(rows, word, four);
      for (size_t j = 0; j < 4; ++j) hn::StoreU(four[j], d, out + (word + j) * kTileWords);
    }
    for (; word < words; ++word) {
      for (size_t i = 0; i < kLanes; ++i) std::memcpy(out + word * kTileWords + i, rows[i] + word, 4);
    }
    for (; word < t.k_dim / 2; ++word) hn::StoreU(hn::Zero(d), d, out + word * kTileWords);
  }
}

// kLanes values of one key as words; zero for keys from `count` on and dimensions from head_dim on.
HWY_INLINE hn::Vec<DU> ValueWords(const Bf16* base, const KeyTile& tile, size_t count, size_t key, size_t dim,
                                  size_t head_dim) {
  const DU d;
  const hn::Rebind<uint16_t, DU> d16;
  if (key >= count || dim >= head_dim) return hn::Zero(d);
  const Bf16* from = base + size_t{tile.rows[key]} * head_dim + dim;
  if (dim + kLanes <= head_dim) return hn::PromoteTo(d, hn::LoadU(d16, from));
  HWY_ALIGN uint32_t lanes[kLanes] = {};
  for (size_t i = 0; dim + i < head_dim; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
}

// The first `count` values of a tile become tiles of 16 dimensions by 32 keys, zero beyond them. Returns
// whether all are finite.
HWY_INLINE bool PackValueTiles(const TileTask& t, const KvSegment& segment, const KeyTile& tile,
                               size_t count) {
  const DU d;
  const size_t head_dim = t.task.args->head_dim;
  const Bf16* base = static_cast<const Bf16*>(segment.v) + t.task.kv_head * segment.head_stride;
  const auto low = hn::Set(d, 0x7f80u);
  const auto high = hn::Set(d, 0x7f800000u);
  auto bad = hn::Zero(d);
  for (size_t dim = 0; dim < t.memory.padded_dim; dim += kLanes) {
    for (size_t key = 0; key < tile.count; key += key % kTileSide == kTileSide - 1 ? kTileSide + 1 : 1) {
      const auto word =
          hn::Or(ValueWords(base, tile, count, key, dim, head_dim),
                 hn::ShiftLeft<16>(ValueWords(base, tile, count, key + kTileSide, dim, head_dim)));
      bad = hn::Or(bad, hn::Or(hn::VecFromMask(d, hn::Eq(hn::And(word, low), low)),
                               hn::VecFromMask(d, hn::Eq(hn::And(word, high), high))));
      Bf16* to = t.values + (dim / kTileSide * kKeySteps + key / kTileSteps) * kTileElements;
      hn::StoreU(word, d, reinterpret_cast<uint32_t*>(to) + key % kTileSteps * kTileWords + dim % kTileSide);
    }
    // The rest of the last step.
    for (size_t key = tile.count % kTileSteps; key != 0 && key < kTileSide; ++key) {
      Bf16* to = t.values + (dim / kTileSide * kKeySteps + tile.count / kTileSteps) * kTileElements;
      hn::StoreU(hn::Zero(d), d, reinterpret_cast<uint32_t*>(to) + key * kTileWords + dim % kTileSide);
    }
  }
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

// ToBf16 in the upper half of each word, the lower half zero. A NaN of tiles and of Exp2 has no low bits that
// could carry over.
HWY_INLINE hn::Vec<DU> RoundWord(VF value) {
  const DU d;
  const auto bits = hn::BitCast(d, value);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  return hn::And(hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), even), hn::Set(d, 0xffff0000u));
}

// Scores of one row become weights in bf16; its total is of the rounded weights. `visible` keys count;
// weights of the others, up to `width`, are zero.
HWY_INLINE void WeightRowTiles(const TaskMemory& memory, size_t row, float* scores, uint32_t* weights,
                               size_t visible, size_t width) {
  const DF d;
  const DU du;
  const auto shift = MaskAndShift(memory, row, scores, visible, width);
  float* totals = memory.totals + row * kTotals;
  auto total = hn::LoadU(d, totals);
  for (size_t i = 0; i < width; i += kTileSteps) {
    for (size_t h = 0; h < kTileSide; h += kLanes) {
      const auto first = RoundWord(Exp2(hn::Sub(hn::LoadU(d, scores + i + h), shift)));
      const auto second = RoundWord(Exp2(hn::Sub(hn::LoadU(d, scores + i + h + kTileSide), shift)));
      total = hn::Add(total, hn::Add(hn::BitCast(d, first), hn::BitCast(d, second)));
      hn::StoreU(hn::Or(hn::ShiftRight<16>(first), second), du, weights + i / 2 + h);
    }
  }
  hn::StoreU(total, d, totals);
}

// weights · v of a block's rows, query by query: a value that is not finite reaches those only that see it.
void AddValuesByQuery(const TileTask& t, const KvSegment& segment, const KeyTile& tile, size_t begin,
                      size_t end) {
  static thread_local Scratch floats, halves;
  const size_t padded = t.memory.padded_dim;
  const size_t most = RoundUp(std::min(t.group(), kBlockFolded), kTileSide);
  float* sums = floats.Get<float>(most * padded);
  Bf16* weights = halves.Get<Bf16>(most * kTileKeys);
  for (size_t row = begin; row < end;) {
    const size_t query = t.QueryOf(row);
    const size_t next = std::min(end, (query + 1 - t.task.row_begin) * t.group());
    const size_t visible = tile.VisibleFrom(t.task.args->q_positions[query]);
    if (visible > 0) {
      PackValueTiles(t, segment, tile, visible);
      std::fill_n(sums, most * padded, 0.0f);
      std::fill_n(weights, most * kTileKeys, Bf16{0});
      std::copy_n(t.memory.sums + row * padded, (next - row) * padded, sums);
      std::copy_n(t.weights + (row - begin) * kTileKeys, (next - row) * kTileKeys, weights);
      t.unit.multiply({.a = weights,
                       .a_stride = kTileKeys,
                       .b = t.values,
                       .b_stride = kKeySteps,
                       .c = sums,
                       .c_stride = padded,
                       .row_tiles = most / kTileSide,
                       .col_tiles = padded / kTileSide,
                       .k_tiles = (visible + kTileSteps - 1) / kTileSteps,
                       .add = true});
      std::copy_n(sums, (next - row) * padded, t.memory.sums + row * padded);
    }
    row = next;
  }
  PackValueTiles(t, segment, tile, tile.count);
}

// One tile of keys for folded rows [begin, end), at most a block.
HWY_INLINE void AttendBlock(const TileTask& t, const KvSegment& segment, const KeyTile& tile, bool finite,
                            size_t begin, size_t end) {
  const uint32_t* positions = t.task.args->q_positions;
  const size_t most = tile.VisibleFrom(positions[t.QueryOf(end - 1)]);
  if (most == 0) return;
  const size_t width = RoundUp(most, kTileSteps);
  const size_t row_tiles = (end - begin + kTileSide - 1) / kTileSide;
  t.unit.multiply({.a = t.q + begin * t.k_dim,
                   .a_stride = t.k_dim,
                   .b = t.keys,
                   .b_stride = t.k_dim / kTileSteps,
                   .c = t.memory.scores,
                   .c_stride = kTileKeys,
                   .row_tiles = row_tiles,
                   .col_tiles = width / kTileSide,
                   .k_tiles = t.k_dim / kTileSteps});
  size_t visible = tile.VisibleFrom(positions[t.QueryOf(begin)]);
  const bool all_see_all = visible == tile.count;
  for (size_t row = begin; row < end; ++row) {
    while (visible < most && tile.positions[visible] <= positions[t.QueryOf(row)]) ++visible;
    WeightRowTiles(t.memory, row, t.memory.scores + (row - begin) * kTileKeys,
                   reinterpret_cast<uint32_t*>(t.weights + (row - begin) * kTileKeys), visible, width);
  }
  if (!finite && !all_see_all) return AddValuesByQuery(t, segment, tile, begin, end);
  t.unit.multiply({.a = t.weights,
                   .a_stride = kTileKeys,
                   .b = t.values,
                   .b_stride = kKeySteps,
                   .c = t.memory.sums + begin * t.memory.padded_dim,
                   .c_stride = t.memory.padded_dim,
                   .row_tiles = row_tiles,
                   .col_tiles = t.memory.padded_dim / kTileSide,
                   .k_tiles = width / kTileSteps,
                   .add = true});
}

HWY_INLINE void AttendTileByUnit(const TileTask& t, const KvSegment& segment, const KeyTile& tile) {
  const size_t first = FirstRowAt(t.task, tile.positions[0]);
  if (first == t.task.row_end) return;
  PackKeyTiles(t, segment, tile);
  const bool finite = PackValueTiles(t, segment, tile, tile.count);
  // Blocks begin at whole tiles of rows.
  const size_t begin = (first - t.task.row_begin) * t.group() / kTileSide * kTileSide;
  for (size_t row = begin; row < t.folded; row += kBlockFolded) {
    AttendBlock(t, segment, tile, finite, row, std::min(t.folded, row + kBlockFolded));
  }
}

void AttendTaskByUnit(const Task& task, const TileUnit& unit) {
  const SegmentAttentionArgs& args = *task.args;
  const TileTask t = MakeTileTask(task, unit);
  const uint32_t last_position = args.q_positions[task.row_end - 1];
  KeyTile tile;
  unit.begin();
  for (const KvSegment& segment : args.segments) {
    TileWalker walker(segment);
    if (!walker.Next(last_position, &tile)) continue;
    RotateQueries(t, segment, FirstRowAt(task, tile.positions[0]));
    do {
      AttendTileByUnit(t, segment, tile);
    } while (walker.Next(last_position, &tile));
  }
  unit.end();
  WriteOutput(task, t.memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(AttendTaskByUnit);

namespace internal {
namespace {

// Packing a tile of keys and values costs as much as softmax of some twenty rows.
constexpr TaskSize kTaskSize = {.fewest = 96, .most = 384};

}  // namespace

void SegmentAttentionTiles(const SegmentAttentionArgs& args, ThreadPool* pool, const TileUnit& unit) {
  ForAttentionTasks(args, pool, kTaskSize, [&](const AttentionTask& task) {
    HWY_DYNAMIC_DISPATCH(AttendTaskByUnit)(task, unit);
  });
}

}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
