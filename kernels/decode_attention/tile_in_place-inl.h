// One tile of keys and values for few rows, read where they lie: keys are transposed in registers on their
// way into the scores, values widened on their way into the sums, and the next of them fetched meanwhile.
// Included once per SIMD target by Highway's foreach_target.
//
// Every score and sum is the chain that the register tile makes of packed keys and values, in the same order:
// the same bytes either way, so a row may take this way alone and the other in company.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/api/dtype.h"
#include "kernels/segment_attention/segment_attention.h"

#if defined(EPIC_KERNELS_DECODE_ATTENTION_TILE_IN_PLACE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EPIC_KERNELS_DECODE_ATTENTION_TILE_IN_PLACE_INL_H_
#undef EPIC_KERNELS_DECODE_ATTENTION_TILE_IN_PLACE_INL_H_
#else
#define EPIC_KERNELS_DECODE_ATTENTION_TILE_IN_PLACE_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/segment_attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

// Above so many rows packing pays.
constexpr size_t kMostRowsInPlace = 8;
// Rows that go through a tile together, and vectors of values at once: their sums stay in registers.
constexpr size_t kRowsAtOnce = 4;
constexpr size_t kVectorsAtOnce = 4;
constexpr size_t kLineBytes = 64;

// Neighbouring rows of one kv head, in memory.
struct RowsInPlace {
  const char* at = nullptr;
  size_t count = 0;
  size_t row_bytes = 0;
  const char* Row(size_t row) const { return at + row * row_bytes; }
};

// Asks for memory that is read next, a little with every step of the work before it: into the first-level
// cache, or into the second where packed tiles fill the first.
class Fetcher {
 public:
  explicit Fetcher(const RowsInPlace& rows) : at_(rows.at), end_(rows.Row(rows.count)) {}
  HWY_INLINE void Ask(size_t lines) {
    for (size_t line = 0; line < lines && at_ < end_; ++line, at_ += kLineBytes)
      __builtin_prefetch(at_, 0, 3);
  }
  HWY_INLINE void AskFar(size_t lines) {
    for (size_t line = 0; line < lines && at_ < end_; ++line, at_ += kLineBytes)
      __builtin_prefetch(at_, 0, 2);
  }
  // Still to be asked for.
  size_t lines() const {
    return at_ < end_ ? (static_cast<size_t>(end_ - at_) + kLineBytes - 1) / kLineBytes : 0;
  }

 private:
  const char* at_;
  const char* end_;
};

HWY_INLINE bool CanAttendInPlace(size_t rows, size_t head_dim, DType dtype) {
  const size_t words = head_dim * SizeOf(dtype) / sizeof(uint32_t);
  return rows <= kMostRowsInPlace && head_dim % kLanes == 0 && words % 4 == 0;
}

template <size_t kRows>
HWY_INLINE void AddDimension(const float* q, size_t head_dim, VF left, VF right, VF (&sums)[kRows][2]) {
  for (size_t r = 0; r < kRows; ++r) {
    const VF value = hn::Set(DF(), q[r * head_dim]);
    sums[r][0] = hn::MulAdd(value, left, sums[r][0]);
    sums[r][1] = hn::MulAdd(value, right, sums[r][1]);
  }
}

// scores[r][key] = q[r] · key. Scores up to the next multiple of two vectors are of some other key.
// Shape: q [kRows][head_dim], scores [kRows][kTileKeys].
template <size_t kRows, bool kIsBf16>
HWY_NOINLINE void ScoreKeys(const RowsInPlace& keys, size_t head_dim, const float* HWY_RESTRICT q,
                            Fetcher* fetcher, float* HWY_RESTRICT scores) {
  const DF df;
  const DU d;
  constexpr size_t kKeys = 2 * kLanes;
  const size_t words = keys.row_bytes / sizeof(uint32_t);
  const size_t lines = (kKeys * keys.row_bytes / kLineBytes + words / 4 - 1) / (words / 4);
  Fetcher ahead = *fetcher;
  for (size_t first = 0; first < keys.count; first += kKeys) {
    const uint32_t* rows[kKeys];
    for (size_t i = 0; i < kKeys; ++i) {
      rows[i] = reinterpret_cast<const uint32_t*>(keys.Row(std::min(first + i, keys.count - 1)));
    }
    VF sums[kRows][2];
    for (size_t r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = hn::Zero(df);
    for (size_t word = 0; word < words; word += 4) {
      ahead.Ask(lines);
      hn::Vec<DU> left[4];
      hn::Vec<DU> right[4];
      TransposeFour(rows, word, left);
      TransposeFour(rows + kLanes, word, right);
      for (size_t j = 0; j < 4; ++j) {
        if constexpr (kIsBf16) {
          const float* pair = q + 2 * (word + j);
          const auto high = hn::Set(d, 0xffff0000u);
          AddDimension<kRows>(pair, head_dim, hn::BitCast(df, hn::ShiftLeft<16>(left[j])),
                              hn::BitCast(df, hn::ShiftLeft<16>(right[j])), sums);
          AddDimension<kRows>(pair + 1, head_dim, hn::BitCast(df, hn::And(left[j], high)),
                              hn::BitCast(df, hn::And(right[j], high)), sums);
        } else {
          AddDimension<kRows>(q + word + j, head_dim, hn::BitCast(df, left[j]), hn::BitCast(df, right[j]),
                              sums);
        }
      }
    }
    for (size_t r = 0; r < kRows; ++r) {
      hn::StoreU(sums[r][0], df, scores + r * kTileKeys + first);
      hn::StoreU(sums[r][1], df, scores + r * kTileKeys + first + kLanes);
    }
  }
  *fetcher = ahead;
}

template <bool kIsBf16>
HWY_INLINE VF LoadValues(const char* row, size_t dim) {
  if constexpr (kIsBf16) {
    const hn::Rebind<uint16_t, DU> d16;
    const auto half = hn::LoadU(d16, reinterpret_cast<const Bf16*>(row) + dim);
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), half)));
  } else {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(row) + dim);
  }
}

// sums[r] += weights[r] · values, in kVectors vectors from `dim` on. When a sum is not finite, the keys of
// weight zero are left out.
template <size_t kRows, size_t kVectors, bool kIsBf16>
HWY_NOINLINE void AddValues(const RowsInPlace& values, size_t dim, const float* HWY_RESTRICT weights,
                            size_t sum_stride, Fetcher* fetcher, float* HWY_RESTRICT sums) {
  const DF d;
  const size_t lines = (values.row_bytes + kLineBytes - 1) / kLineBytes;
  Fetcher ahead = *fetcher;
  VF sum[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (size_t key = 0; key < values.count; ++key) {
    ahead.Ask(lines);
    VF value[kVectors];
    for (size_t v = 0; v < kVectors; ++v) value[v] = LoadValues<kIsBf16>(values.Row(key), dim + v * kLanes);
    for (size_t r = 0; r < kRows; ++r) {
      const VF weight = hn::Set(d, weights[r * kTileKeys + key]);
      for (size_t v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, value[v], sum[r][v]);
    }
  }
  *fetcher = ahead;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      if (!hn::AllTrue(d, hn::IsFinite(sum[r][v]))) {
        sum[r][v] = hn::Zero(d);
        for (size_t key = 0; key < values.count; ++key) {
          const float weight = weights[r * kTileKeys + key];
          if (weight == 0) continue;
          sum[r][v] = hn::MulAdd(hn::Set(d, weight), LoadValues<kIsBf16>(values.Row(key), dim + v * kLanes),
                                 sum[r][v]);
        }
      }
      float* to = sums + r * sum_stride + dim + v * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, to), sum[r][v]), d, to);
    }
  }
}

template <size_t kRows, bool kIsBf16>
HWY_INLINE void AddAllValues(const RowsInPlace& values, size_t head_dim, const float* weights,
                             size_t sum_stride, Fetcher* fetcher, float* sums) {
  size_t dim = 0;
  for (; dim + kVectorsAtOnce * kLanes <= head_dim; dim += kVectorsAtOnce * kLanes) {
    AddValues<kRows, kVectorsAtOnce, kIsBf16>(values, dim, weights, sum_stride, fetcher, sums);
  }
  for (; dim < head_dim; dim += kLanes) {
    AddValues<kRows, 1, kIsBf16>(values, dim, weights, sum_stride, fetcher, sums);
  }
}

// Calls fn.operator()<kRows>(first) for blocks of at most kRowsAtOnce rows that cover [0, rows).
template <class Fn>
HWY_INLINE void ForRowsAtOnce(size_t rows, const Fn& fn) {
  for (size_t first = 0; first < rows;) {
    const size_t count = std::min(rows - first, kRowsAtOnce);
    switch (count) {
      case 4:
        fn.template operator()<4>(first);
        break;
      case 3:
        fn.template operator()<3>(first);
        break;
      case 2:
        fn.template operator()<2>(first);
        break;
      default:
        fn.template operator()<1>(first);
        break;
    }
    first += count;
  }
}

// Scores of `rows` rows over all keys, while `next` is fetched.
HWY_INLINE void ScoreInPlace(const RowsInPlace& keys, DType dtype, size_t rows, size_t head_dim,
                             const float* q, const RowsInPlace& next, float* scores) {
  Fetcher fetcher(next);
  ForRowsAtOnce(rows, [&]<size_t kRows>(size_t first) {
    const auto score = dtype == DType::kBf16 ? ScoreKeys<kRows, true> : ScoreKeys<kRows, false>;
    score(keys, head_dim, q + first * head_dim, &fetcher, scores + first * kTileKeys);
  });
}

// Adds the values of all keys, weighted, to the sums of `rows` rows, while `next` is fetched.
HWY_INLINE void AddInPlace(const RowsInPlace& values, DType dtype, size_t rows, size_t head_dim,
                           const float* weights, size_t sum_stride, const RowsInPlace& next, float* sums) {
  Fetcher fetcher(next);
  ForRowsAtOnce(rows, [&]<size_t kRows>(size_t first) {
    const auto add = dtype == DType::kBf16 ? AddAllValues<kRows, true> : AddAllValues<kRows, false>;
    add(values, head_dim, weights + first * kTileKeys, sum_stride, &fetcher, sums + first * sum_stride);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#endif  // EPIC_KERNELS_DECODE_ATTENTION_TILE_IN_PLACE_INL_H_
