// Tiles of keys and values, and the online softmax over them: what every attention on CPUs is made of.
// Included once per SIMD target by Highway's foreach_target.
//
// Keys and values of either type are widened to f32, exactly. All sums have one fixed order, so the bytes of
// a row depend on the tile and the row only.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/api/dtype.h"
#include "kernels/segment_attention/segment_attention.h"

#if defined(EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_TILE_INL_H_
#undef EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_TILE_INL_H_
#else
#define EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_TILE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/api/micro_kernel-inl.h"
#include "kernels/api/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

constexpr size_t kTileKeys = 128;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// What a worker needs for one task; pointers into its scratch. "Folded" rows: query rows times group.
struct TaskMemory {
  float* q;       // [folded][head_dim], rotated for the segment, times scale and log2(e)
  float* scores;  // [folded][kTileKeys], then weights
  float* sums;    // [folded][padded_dim]
  float* keys;    // [kTileKeys/32][head_dim][32]: panels for q · kᵀ
  float* values;  // [padded_dim/32][kTileKeys][32]: panels for weights · v
  float* shift;   // [folded], what is taken off scores before they become weights; minus infinity at first
  float* totals;  // [folded][kTotals], sums of weights by lane
  size_t padded_dim;
};

constexpr size_t kTotals = 16;

constexpr size_t PaddedDim(size_t head_dim) {
  return (head_dim + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
}

// What Carve takes.
constexpr size_t TaskFloats(size_t folded, size_t head_dim) {
  return folded * (head_dim + kTileKeys + PaddedDim(head_dim) + 1 + kTotals) +
         kTileKeys * (head_dim + PaddedDim(head_dim));
}

// Ready for a first tile, but for q.
inline TaskMemory Carve(float* memory, size_t folded, size_t head_dim) {
  TaskMemory out;
  out.padded_dim = PaddedDim(head_dim);
  out.q = memory;
  out.scores = out.q + folded * head_dim;
  out.sums = out.scores + folded * kTileKeys;
  out.keys = out.sums + folded * out.padded_dim;
  out.values = out.keys + kTileKeys * head_dim;
  out.totals = out.values + kTileKeys * out.padded_dim;
  out.shift = out.totals + folded * kTotals;
  std::fill_n(out.sums, folded * out.padded_dim, 0.0f);
  std::fill_n(out.totals, folded * kTotals, 0.0f);
  std::fill_n(out.shift, folded, kMinusInfinity);
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

// Walks the visible ones of rows [begin, end) of a segment in order, skipping the replaced ones.
class TileWalker {
 public:
  explicit TileWalker(const KvSegment& segment) : TileWalker(segment, 0, segment.rows) {}
  TileWalker(const KvSegment& segment, uint32_t begin, uint32_t end)
      : segment_(segment), row_(std::max(begin, segment.first_row)), end_(end) {}

  // False when no key at or before `last_position` is left.
  bool Next(uint32_t last_position, KeyTile* tile) {
    tile->count = 0;
    while (tile->count < kTileKeys && row_ < end_) {
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
  const uint32_t end_;
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

// A row's shift moves only when a score passes it by more than this many powers of two: weights stay far from
// overflow, and hardly any tile behind the first has to correct the sums.
constexpr float kShiftSlack = 8.0f;

// Moves a row's shift up to the highest of `tops` and corrects its sums.
HWY_MAYBE_UNUSED static HWY_NOINLINE void MoveShift(const TaskMemory& memory, size_t row, const float* tops) {
  const DF d;
  const float before = memory.shift[row];
  const float now = std::max(before, hn::GetLane(hn::MaxOfLanes(d, hn::LoadU(d, tops))));
  memory.shift[row] = now;
  if (before == kMinusInfinity) return;  // all sums are zero
  const auto correction = Exp2(hn::Set(d, before - now));
  const auto correct = [&](float* at, size_t count) {
    for (size_t i = 0; i < count; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, at + i), correction), d, at + i);
    }
  };
  correct(memory.sums + row * memory.padded_dim, memory.padded_dim);
  correct(memory.totals + row * kTotals, kTotals);
}

// Hides the scores from `visible` on, up to `width`, and moves the row's shift where a score is far above it.
// Returns what to subtract from each score: 0 when all are minus infinity, which then weigh nothing.
HWY_INLINE VF MaskAndShift(const TaskMemory& memory, size_t row, float* scores, size_t visible,
                           size_t width) {
  const DF d;
  const auto minus_infinity = hn::Set(d, kMinusInfinity);
  auto top = minus_infinity;
  for (size_t i = 0; i < width; i += kLanes) {
    auto score = hn::LoadU(d, scores + i);
    if (i + kLanes > visible) {
      score = hn::IfThenElse(hn::FirstN(d, visible > i ? visible - i : 0), score, minus_infinity);
      hn::StoreU(score, d, scores + i);
    }
    top = hn::Max(top, score);
  }
  if (!hn::AllTrue(d, hn::Le(top, hn::Set(d, memory.shift[row] + kShiftSlack)))) {
    HWY_ALIGN float tops[kLanes];
    hn::Store(top, d, tops);
    MoveShift(memory, row, tops);
  }
  return hn::Set(d, memory.shift[row] == kMinusInfinity ? 0.0f : memory.shift[row]);
}

// REQUIRES: visible <= width, a multiple of kPanelColumns.
HWY_INLINE void WeightKeys(const TaskMemory& memory, size_t row, size_t visible, size_t width) {
  const DF d;
  float* scores = memory.scores + row * kTileKeys;
  const auto shift = MaskAndShift(memory, row, scores, visible, width);
  float* totals = memory.totals + row * kTotals;
  auto total = hn::LoadU(d, totals);
  for (size_t i = 0; i < width; i += kLanes) {
    const auto weight = Exp2(hn::Sub(hn::LoadU(d, scores + i), shift));
    hn::StoreU(weight, d, scores + i);
    total = hn::Add(total, weight);
  }
  hn::StoreU(total, d, totals);
}

// Scores of one row become weights 2^(score - shift); sums so far are corrected for a new shift. `visible`
// keys count; weights of the tile's other keys, up to tile_width, are zero.
HWY_INLINE void WeightRow(const TaskMemory& memory, size_t row, size_t visible, size_t tile_width) {
  if (visible == kTileKeys) return WeightKeys(memory, row, kTileKeys, kTileKeys);
  const size_t width = (visible + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  WeightKeys(memory, row, visible, width);
  float* scores = memory.scores + row * kTileKeys;
  if (width < tile_width) std::fill(scores + width, scores + tile_width, 0.0f);
}

// The sum of a row's weights.
HWY_INLINE float TotalOf(const TaskMemory& memory, size_t row) {
  const DF d;
  const float* totals = memory.totals + row * kTotals;
  auto total = hn::LoadU(d, totals);
  for (size_t i = kLanes; i < kTotals; i += kLanes) total = hn::Add(total, hn::LoadU(d, totals + i));
  return hn::GetLane(hn::SumOfLanes(d, total));
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_ATTENTION_TILE_INL_H_
