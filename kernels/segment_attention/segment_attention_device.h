// Inside of segment_attention_cuda.h: what one block of the attention kernels does. A block holds one kv head
// and up to 64 folded query rows (reader * heads of the kv head + head), 16 to a warp, and walks splits of
// keys in tiles of 64, double-buffered. Device code only.
//
// What a row sees of a tile is one word of 64 bits: causality, replaced rows and the ends of the segment at
// once. Keys that a row does not see get a weight of exactly zero; values that are not finite become zero in
// shared memory, and the rows that do see one become NaN: so nothing else in the tile changes a row's bytes.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_DEVICE_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_DEVICE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/segment_attention/segment_attention_cuda.h"
#include "kernels/simt/simt.h"

namespace epic::attention {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kRows = 64;  // folded rows of a block
constexpr uint32_t kKeys = 64;  // keys of a tile
constexpr uint32_t kStages = 2;
constexpr uint32_t kBadSlots = 3;
constexpr uint32_t kMinusInfinityBits = 0xff800000u;
constexpr uint32_t kNanBits = 0x7fffffffu;

// A kernel's argument.
struct AttendParams {
  GpuAttentionArgs common;
  uint32_t group = 0;           // heads of a kv head
  uint32_t readers_a_tile = 0;  // kRows / group
  uint32_t first_row = 0;       // link: this launch's rows are [first_row, end_row)
  uint32_t end_row = 0;
  const AttentionSplit* splits = nullptr;  // link
  uint32_t split_count = 0;
  const AttentionReader* readers = nullptr;  // decode; null for a link
  const AttentionGroup* groups = nullptr;
  const uint32_t* row_slots = nullptr;
  float* sums = nullptr;   // [slots][heads][kDim]: weighted values of a split, not divided
  float* stats = nullptr;  // [slots][heads][2]: highest score and total weight
};

// Some readers and the split that they read.
struct Work {
  uint32_t first_reader = 0;  // link: a query row
  uint32_t reader_count = 0;
  uint32_t segment = 0;      // of the first reader
  uint32_t first_row = 0;    // of the segment
  uint32_t split_index = 0;  // link
};

struct ReaderView {
  uint32_t row = 0;
  uint32_t segment = 0;
  uint32_t slot = 0;
  uint32_t turn = 0;   // position at which its query is rotated
  uint32_t begin = 0;  // rows of the segment within this split that causality and first_row leave
  uint32_t end = 0;    // begin == end: none
};

template <uint32_t kDim>
constexpr size_t SharedBytes() {
  const size_t tiles = (kRows + 2 * kStages * kKeys) * kDim * sizeof(Bf16);
  const size_t masks = kStages * kRows * sizeof(uint64_t) + 128;  // and the bad keys
  return tiles + masks + kRows * sizeof(ReaderView) + kAttentionSplitRows * sizeof(uint32_t);
}

// Where a chunk of 8 elements of a row lies: rows are permuted so that ldmatrix meets every bank once.
template <uint32_t kDim>
EPIC_DEVICE uint32_t Swizzled(uint32_t row, uint32_t chunk) {
  return row * kDim + (chunk ^ (row & 7)) * 8;
}

// Joins a split's result into a running one. Explicit roundings: the same bits wherever it is compiled in.
struct JoinFactors {
  float before;
  float split;
};
EPIC_DEVICE JoinFactors JoinStats(float split_highest, float split_total, float* highest, float* total) {
  const float now = *highest > split_highest ? *highest : split_highest;
  const JoinFactors factors = {simt::Exp2(*highest - now), simt::Exp2(split_highest - now)};
  *total = simt::Fma(*total, factors.before, simt::Mul(split_total, factors.split));
  *highest = now;
  return factors;
}
EPIC_DEVICE float JoinSum(float sum, float split_sum, JoinFactors factors) {
  return simt::Fma(sum, factors.before, simt::Mul(split_sum, factors.split));
}
EPIC_DEVICE bool IsEmpty(float highest, float total) {
  return simt::FloatToBits(highest) == kMinusInfinityBits && total == 0.0f;
}
// Adding +0 makes every zero positive.
EPIC_DEVICE float Divided(float sum, float total, bool empty) {
  return empty ? 0.0f : simt::Fma(sum, 1.0f / total, 0.0f);
}

template <uint32_t kDim>
class Block {
 public:
  // This lane's part of the result: rows m and m + 8 of its warp, columns 8n + 2(lane%4) and the next one.
  struct Result {
    float highest[2];
    float total[2];  // AttendSplit sums it over the quad at the end
    float sums[kDim / 8][4];

    EPIC_DEVICE void Clear() {
      EPIC_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        highest[h] = simt::BitsToFloat(kMinusInfinityBits);
        total[h] = 0;
      }
      EPIC_UNROLL
      for (uint32_t n = 0; n < kDim / 8; ++n) {
        EPIC_UNROLL
        for (uint32_t e = 0; e < 4; ++e) sums[n][e] = 0;
      }
    }
    EPIC_DEVICE void Join(const Result& split) {
      EPIC_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        if (IsEmpty(split.highest[h], split.total[h])) continue;
        const JoinFactors factors = JoinStats(split.highest[h], split.total[h], &highest[h], &total[h]);
        EPIC_UNROLL
        for (uint32_t n = 0; n < kDim / 8; ++n) {
          sums[n][2 * h] = JoinSum(sums[n][2 * h], split.sums[n][2 * h], factors);
          sums[n][2 * h + 1] = JoinSum(sums[n][2 * h + 1], split.sums[n][2 * h + 1], factors);
        }
      }
    }
  };

  EPIC_DEVICE Block(const AttendParams& params, uint32_t kv_head) : p_(params), kv_head_(kv_head) {
    simt::SharedCarver carver;
    q_ = carver.Take<Bf16>(kRows * kDim);
    k_ = carver.Take<Bf16>(kStages * kKeys * kDim);
    v_ = carver.Take<Bf16>(kStages * kKeys * kDim);
    visible_ = carver.Take<uint64_t>(kStages * kRows);
    bad_ = carver.Take<uint32_t>(kBadSlots * 2);
    readers_ = carver.Take<ReaderView>(kRows);
    positions_ = carver.Take<uint32_t>(kAttentionSplitRows);
    EPIC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      row_[h] = simt::WarpIndex() * 16 + h * 8 + simt::Lane() / 4;
      reader_[h] = row_[h] / p_.group;
    }
  }

  // All threads together. Every row's softmax over one split.
  EPIC_DEVICE void AttendSplit(const Work& work, Result* result) {
    result->Clear();
    Begin(work);
    FindTiles(work);
    if (first_tile_ >= end_tile_) return;
    IssueTile(first_tile_, 0);
    // A link's rows turn by the same in every split of a segment.
    if (p_.readers != nullptr || work.segment != rotated_for_) RotateQueries(work);
    rotated_for_ = work.segment;
    uint32_t bad_slot = 0;
    for (uint32_t tile = first_tile_; tile < end_tile_; ++tile) {
      const uint32_t stage = (tile - first_tile_) % kStages;
      const uint32_t next_slot = (bad_slot + 1) % kBadSlots;
      simt::CpAsyncWait<0>();
      ClearBadValues(stage, bad_slot);
      if (simt::ThreadIndex() < 2) bad_[next_slot * 2 + simt::ThreadIndex()] = 0;
      simt::SyncBlock();
      if (tile + 1 < end_tile_) IssueTile(tile + 1, (stage + 1) % kStages);
      AttendTile(stage, bad_slot, result);
      bad_slot = next_slot;
    }
    EPIC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      result->total[h] += simt::ShuffleXor(result->total[h], 1);
      result->total[h] += simt::ShuffleXor(result->total[h], 2);
    }
  }

  // The split's result for whoever joins the splits.
  EPIC_DEVICE void Store(const Work& work, const Result& result) {
    const uint32_t quad = simt::Lane() % 4;
    EPIC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      if (reader_[h] >= work.reader_count || reader_[h] >= p_.readers_a_tile) continue;
      const size_t at = size_t{readers_[reader_[h]].slot} * p_.common.heads + HeadOf(h);
      if (quad == 0) {
        p_.stats[2 * at] = result.highest[h];
        p_.stats[2 * at + 1] = result.total[h];
      }
      if (IsEmpty(result.highest[h], result.total[h])) continue;
      float* to = p_.sums + at * kDim + 2 * quad;
      EPIC_UNROLL
      for (uint32_t n = 0; n < kDim / 8; ++n) {
        to[8 * n] = result.sums[n][2 * h];
        to[8 * n + 1] = result.sums[n][2 * h + 1];
      }
    }
  }

  // The result itself, for link rows [work.first_reader, + reader_count).
  EPIC_DEVICE void WriteOutput(const Work& work, const Result& result) {
    EPIC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      if (reader_[h] >= work.reader_count || reader_[h] >= p_.readers_a_tile) continue;
      const bool empty = IsEmpty(result.highest[h], result.total[h]);
      float* to = p_.common.out + size_t{work.first_reader + reader_[h]} * p_.common.out_stride +
                  size_t{HeadOf(h)} * p_.common.head_dim;
      EPIC_UNROLL
      for (uint32_t n = 0; n < kDim / 8; ++n) {
        EPIC_UNROLL
        for (uint32_t e = 0; e < 2; ++e) {
          const uint32_t d = 8 * n + 2 * (simt::Lane() % 4) + e;
          if (d < p_.common.head_dim) to[d] = Divided(result.sums[n][2 * h + e], result.total[h], empty);
        }
      }
    }
  }

 private:
  static constexpr uint32_t kChunks = kDim / 8;
  static constexpr uint32_t kCopies = kKeys * kChunks / kThreads;  // chunks of K, and of V, a thread

  EPIC_DEVICE uint32_t HeadOf(uint32_t h) const {
    return kv_head_ * p_.group + (row_[h] - reader_[h] * p_.group);
  }

  // What the split's keys are, and what each reader sees of them.
  EPIC_DEVICE void Begin(const Work& work) {
    const KvSegment& segment = p_.common.segments[work.segment];
    const uint32_t left = segment.rows > work.first_row ? segment.rows - work.first_row : 0;
    const uint32_t count = left < kAttentionSplitRows ? left : kAttentionSplitRows;
    const size_t head = size_t{kv_head_} * segment.head_stride;
    k_from_ = static_cast<const Bf16*>(segment.k) + head;
    v_from_ = static_cast<const Bf16*>(segment.v) + head;
    aligned_ = reinterpret_cast<uintptr_t>(k_from_) % 16 == 0 &&
               reinterpret_cast<uintptr_t>(v_from_) % 16 == 0 && p_.common.head_dim % 8 == 0;
    if (segment.row_positions != nullptr) {
      for (uint32_t i = simt::ThreadIndex(); i < count; i += kThreads) {
        positions_[i] = segment.row_positions[work.first_row + i];
      }
    }
    simt::SyncBlock();  // and nobody reads what the split before left
    if (simt::ThreadIndex() < 2) bad_[simt::ThreadIndex()] = 0;
    replaced_ = nullptr;
    cursor_ = replaced_count_ = 0;
    if (simt::ThreadIndex() < work.reader_count) {
      const ReaderView reader = MakeReader(work, simt::ThreadIndex(), count);
      readers_[simt::ThreadIndex()] = reader;
      my_begin_ = reader.begin;
      my_end_ = reader.end;
      FindReplaced(p_.common.segments[reader.segment], reader.begin);
    } else {
      my_begin_ = my_end_ = 0;
    }
    simt::SyncBlock();
  }

  EPIC_DEVICE ReaderView MakeReader(const Work& work, uint32_t index, uint32_t count) const {
    ReaderView reader;
    if (p_.readers != nullptr) {
      const AttentionReader& from = p_.readers[work.first_reader + index];
      reader.row = from.row;
      reader.segment = from.segment;
      reader.slot = from.slot;
    } else {
      reader.row = work.first_reader + index;
      reader.segment = work.segment;
      reader.slot = (reader.row - p_.first_row) * p_.split_count + work.split_index;
    }
    const KvSegment& segment = p_.common.segments[reader.segment];
    const uint32_t at = p_.common.q_positions[reader.row];
    uint32_t end = work.first_row;
    if (segment.row_positions != nullptr) {
      reader.turn = at;
      end += CountUpTo(at, count);
    } else if (at >= segment.position) {
      const uint32_t distance = at - segment.position;
      reader.turn = distance + segment.stored_position;
      end = distance < segment.rows ? distance + 1 : segment.rows;
    }
    if (end > work.first_row + count) end = work.first_row + count;
    const uint32_t begin = segment.first_row > work.first_row ? segment.first_row : work.first_row;
    reader.begin = begin < end ? begin : work.first_row;
    reader.end = begin < end ? end : work.first_row;
    return reader;
  }

  // How many of the split's positions, which ascend, are at most `at`.
  EPIC_DEVICE uint32_t CountUpTo(uint32_t at, uint32_t count) const {
    uint32_t low = 0, high = count;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (positions_[middle] <= at) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  // Moves this thread's cursor to the first replaced row at or after `row`.
  EPIC_DEVICE void FindReplaced(const KvSegment& segment, uint32_t row) {
    if (segment.replaced == nullptr) return;
    replaced_ = segment.replaced;
    replaced_count_ = segment.replaced_count;
    uint32_t low = 0, high = replaced_count_;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (replaced_[middle] < row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    cursor_ = low;
  }

  // The keys that any reader may see; the same in every warp.
  EPIC_DEVICE void FindTiles(const Work& work) {
    uint32_t first = ~0u, end = 0;
    for (uint32_t i = simt::Lane(); i < work.reader_count; i += simt::kWarp) {
      const uint32_t begin = readers_[i].begin, stop = readers_[i].end;
      if (begin >= stop) continue;
      first = begin < first ? begin : first;
      end = stop > end ? stop : end;
    }
    first_key_ = simt::ReduceMin(first);
    end_key_ = simt::ReduceMax(end);
    first_tile_ = first_key_ / kKeys;
    end_tile_ = (end_key_ + kKeys - 1) / kKeys;
  }

  // Starts loading a tile and says what each reader sees of it. Commits one group of copies.
  EPIC_DEVICE void IssueTile(uint32_t tile, uint32_t stage) {
    const uint32_t first_row = tile * kKeys, chunk = simt::ThreadIndex() % kChunks;
    EPIC_UNROLL
    for (uint32_t n = 0; n < kCopies; ++n) {
      const uint32_t row = CopiedRow(n), key = first_row + row;
      const bool valid = key >= first_key_ && key < end_key_ && chunk * 8 < p_.common.head_dim;
      const size_t from = valid ? size_t{key} * p_.common.head_dim + chunk * 8 : 0;
      const uint32_t to = stage * kKeys * kDim + Swizzled<kDim>(row, chunk);
      if (aligned_) {
        simt::CpAsync16(k_.At(to, 8), k_from_ + from, valid);
        simt::CpAsync16(v_.At(to, 8), v_from_ + from, valid);
      } else {
        const uint32_t left = valid ? p_.common.head_dim - chunk * 8 : 0;
        CopyChunk(k_from_ + from, left, k_.At(to, 8));
        CopyChunk(v_from_ + from, left, v_.At(to, 8));
      }
    }
    simt::CpAsyncCommit();
    if (simt::ThreadIndex() < kRows) visible_[stage * kRows + simt::ThreadIndex()] = VisibleFrom(first_row);
  }

  // The row of a tile of which this thread copies a chunk, as the n-th of its kCopies.
  EPIC_DEVICE static uint32_t CopiedRow(uint32_t n) {
    return simt::ThreadIndex() / kChunks + n * (kThreads / kChunks);
  }

  EPIC_DEVICE static void CopyChunk(const Bf16* from, uint32_t count, Bf16* to) {
    for (uint32_t i = 0; i < 8; ++i) to[i] = i < count ? from[i] : Bf16{0};
  }

  // What this thread's reader sees of the tile that begins at `first_row`. Called for ascending tiles.
  EPIC_DEVICE uint64_t VisibleFrom(uint32_t first_row) {
    const uint32_t low = my_begin_ > first_row ? my_begin_ - first_row : 0;
    const uint32_t high = my_end_ > first_row ? my_end_ - first_row : 0;
    if (low >= kKeys || low >= high) return 0;
    uint64_t mask = ~uint64_t{0} << low;
    if (high < kKeys) mask &= (uint64_t{1} << high) - 1;
    for (; cursor_ < replaced_count_ && replaced_[cursor_] < first_row + kKeys; ++cursor_) {
      if (replaced_[cursor_] >= first_row) mask &= ~(uint64_t{1} << (replaced_[cursor_] - first_row));
    }
    return mask;
  }

  // A pair of a query's elements that turn together. Pairs past the head fill it up with zeros.
  struct Pair {
    float first, second, cosine, sine;
  };
  EPIC_DEVICE Pair LoadPair(const Work& work, uint32_t m, uint32_t j) const {
    const uint32_t head_dim = p_.common.head_dim, half = head_dim / 2;
    Pair pair = {0, 0, 0, 0};
    if (m >= work.reader_count * p_.group || j >= half) return pair;
    const uint32_t index = m / p_.group;
    const ReaderView& reader = readers_[index];
    const float* q = p_.common.q + size_t{reader.row} * p_.common.q_stride +
                     size_t{kv_head_ * p_.group + (m - index * p_.group)} * head_dim;
    const bool norm = p_.common.rope.pairs == RopePairs::kNorm;
    pair.first = q[norm ? 2 * j : j];
    pair.second = q[norm ? 2 * j + 1 : j + half];
    pair.cosine = p_.common.rope.cos[size_t{reader.turn} * half + j];
    pair.sine = p_.common.rope.sin[size_t{reader.turn} * half + j];
    return pair;
  }

  EPIC_DEVICE void RotateQueries(const Work& work) {
    constexpr uint32_t kBatch = 8;  // loads on their way at once
    const uint32_t half = p_.common.head_dim / 2;
    const bool norm = p_.common.rope.pairs == RopePairs::kNorm;
    const float scale = p_.common.scale * 1.44269504088896340736f;
    for (uint32_t base = 0; base < kRows * kDim / 2; base += kBatch * kThreads) {
      Pair pairs[kBatch];
      EPIC_UNROLL
      for (uint32_t u = 0; u < kBatch; ++u) {
        const uint32_t i = base + u * kThreads + simt::ThreadIndex();
        pairs[u] = LoadPair(work, i / (kDim / 2), i % (kDim / 2));
      }
      EPIC_UNROLL
      for (uint32_t u = 0; u < kBatch; ++u) {
        const uint32_t i = base + u * kThreads + simt::ThreadIndex();
        const uint32_t m = i / (kDim / 2), j = i % (kDim / 2);
        const uint32_t first = j >= half || norm ? 2 * j : j;
        const uint32_t second = j >= half || norm ? 2 * j + 1 : j + half;
        const Pair& pair = pairs[u];
        const uint32_t turned = simt::PackBf16(
            simt::Mul(scale, simt::Fma(-pair.second, pair.sine, simt::Mul(pair.first, pair.cosine))),
            simt::Mul(scale, simt::Fma(pair.second, pair.cosine, simt::Mul(pair.first, pair.sine))));
        q_[Swizzled<kDim>(m, first / 8) + first % 8] = static_cast<Bf16>(turned);
        q_[Swizzled<kDim>(m, second / 8) + second % 8] = static_cast<Bf16>(turned >> 16);
      }
    }
  }

  // Values that are not finite become zero, their keys are noted. Each thread looks at what it copied itself,
  // so its own wait is enough.
  EPIC_DEVICE void ClearBadValues(uint32_t stage, uint32_t bad_slot) {
    const uint32_t chunk = simt::ThreadIndex() % kChunks;
    EPIC_UNROLL
    for (uint32_t n = 0; n < kCopies; ++n) {
      const uint32_t row = CopiedRow(n);
      auto* at =
          reinterpret_cast<simt::Bits128*>(v_.At(stage * kKeys * kDim + Swizzled<kDim>(row, chunk), 8));
      simt::Bits128 bits = *at;
      bool bad = false;
      EPIC_UNROLL
      for (uint32_t w = 0; w < 4; ++w) {
        const bool low = (bits.word[w] & 0x7f80u) == 0x7f80u;
        const bool high = (bits.word[w] & 0x7f800000u) == 0x7f800000u;
        if (low) bits.word[w] &= 0xffff0000u;
        if (high) bits.word[w] &= 0x0000ffffu;
        bad = bad || low || high;
      }
      if (!bad) continue;
      *at = bits;
      simt::AtomicOr(&bad_[bad_slot * 2 + row / 32], 1u << row % 32);
    }
  }

  // One tile for the warp's 16 rows.
  EPIC_DEVICE void AttendTile(uint32_t stage, uint32_t bad_slot, Result* result) {
    uint64_t visible[2];
    bool some = false, all = true;
    EPIC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      const bool present = reader_[h] < p_.readers_a_tile;
      visible[h] = present ? visible_[stage * kRows + reader_[h]] : 0;
      some = some || visible[h] != 0;
      all = all && visible[h] == ~uint64_t{0};
    }
    if (!simt::Any(some)) return;
    float scores[kKeys / 8][4];
    Score(stage, scores);
    if (!simt::All(all)) Hide(visible, scores);
    Weigh(scores, result);
    const uint64_t bad = bad_[bad_slot * 2] | uint64_t{bad_[bad_slot * 2 + 1]} << 32;
    if (bad != 0) {
      EPIC_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        if ((visible[h] & bad) != 0) result->total[h] = simt::BitsToFloat(kNanBits);
      }
    }
    AddValues(stage, scores, result);
  }

  EPIC_DEVICE void Score(uint32_t stage, float scores[][4]) {
    const uint32_t lane = simt::Lane();
    EPIC_UNROLL
    for (uint32_t n = 0; n < kKeys / 8; ++n) {
      EPIC_UNROLL
      for (uint32_t e = 0; e < 4; ++e) scores[n][e] = 0;
    }
    EPIC_UNROLL
    for (uint32_t d = 0; d < kDim / 16; ++d) {
      uint32_t q[4];
      simt::LdMatrix4(q, q_.At(Swizzled<kDim>(simt::WarpIndex() * 16 + lane % 16, d * 2 + lane / 16), 8));
      EPIC_UNROLL
      for (uint32_t n = 0; n < kKeys / 16; ++n) {
        uint32_t k[4];
        const uint32_t key = n * 16 + lane / 16 * 8 + lane % 8;
        simt::LdMatrix4(k, k_.At(stage * kKeys * kDim + Swizzled<kDim>(key, d * 2 + lane / 8 % 2), 8));
        simt::MmaBf16(scores[2 * n], q, k);
        simt::MmaBf16(scores[2 * n + 1], q, k + 2);
      }
    }
  }

  EPIC_DEVICE static void Hide(const uint64_t* visible, float scores[][4]) {
    const uint32_t shift = 2 * (simt::Lane() % 4);
    EPIC_UNROLL
    for (uint32_t n = 0; n < kKeys / 8; ++n) {
      EPIC_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t word = static_cast<uint32_t>(visible[e / 2] >> (n / 4 * 32)) >> shift;
        if ((word >> (n % 4 * 8 + e % 2) & 1) == 0) scores[n][e] = simt::BitsToFloat(kMinusInfinityBits);
      }
    }
  }

  // Scores become weights 2^(score - highest), rounded to bf16 in pairs: scores[n] then holds the bits of two
  // fragments. Sums so far are corrected for a new highest.
  EPIC_DEVICE static void Weigh(float scores[][4], Result* result) {
    EPIC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      float highest = result->highest[h];
      EPIC_UNROLL
      for (uint32_t n = 0; n < kKeys / 8; ++n) {
        highest = fmaxf(highest, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
      }
      highest = fmaxf(highest, simt::ShuffleXor(highest, 1));
      highest = fmaxf(highest, simt::ShuffleXor(highest, 2));
      const float shift = simt::FloatToBits(highest) == kMinusInfinityBits ? 0.0f : highest;
      const float factor = simt::Exp2(result->highest[h] - shift);
      result->highest[h] = highest;
      float total = simt::Mul(result->total[h], factor);
      EPIC_UNROLL
      for (uint32_t n = 0; n < kKeys / 8; ++n) {
        const uint32_t pair =
            simt::PackBf16(simt::Exp2(scores[n][2 * h] - shift), simt::Exp2(scores[n][2 * h + 1] - shift));
        total = simt::Add(total, simt::BitsToFloat(pair << 16));
        total = simt::Add(total, simt::BitsToFloat(pair & 0xffff0000u));
        scores[n][2 * h] = simt::BitsToFloat(pair);
      }
      result->total[h] = total;
      EPIC_UNROLL
      for (uint32_t n = 0; n < kDim / 8; ++n) {
        result->sums[n][2 * h] = simt::Mul(result->sums[n][2 * h], factor);
        result->sums[n][2 * h + 1] = simt::Mul(result->sums[n][2 * h + 1], factor);
      }
    }
  }

  EPIC_DEVICE void AddValues(uint32_t stage, const float weights[][4], Result* result) {
    const uint32_t lane = simt::Lane();
    EPIC_UNROLL
    for (uint32_t n = 0; n < kKeys / 16; ++n) {
      const uint32_t w[4] = {simt::FloatToBits(weights[2 * n][0]), simt::FloatToBits(weights[2 * n][2]),
                             simt::FloatToBits(weights[2 * n + 1][0]),
                             simt::FloatToBits(weights[2 * n + 1][2])};
      EPIC_UNROLL
      for (uint32_t d = 0; d < kDim / 16; ++d) {
        uint32_t v[4];
        const uint32_t key = n * 16 + lane / 8 % 2 * 8 + lane % 8;
        simt::LdMatrix4Trans(v, v_.At(stage * kKeys * kDim + Swizzled<kDim>(key, d * 2 + lane / 16), 8));
        simt::MmaBf16(result->sums[2 * d], w, v);
        simt::MmaBf16(result->sums[2 * d + 1], w, v + 2);
      }
    }
  }

  const AttendParams& p_;
  const uint32_t kv_head_;
  simt::SharedArray<Bf16> q_;  // [kRows][kDim], these three swizzled
  simt::SharedArray<Bf16> k_;  // [kStages][kKeys][kDim]
  simt::SharedArray<Bf16> v_;
  simt::SharedArray<uint64_t> visible_;    // [kStages][kRows], by reader
  simt::SharedArray<uint32_t> bad_;        // [kBadSlots][2]: keys whose values are not all finite
  simt::SharedArray<ReaderView> readers_;  // [kRows]
  simt::SharedArray<uint32_t> positions_;  // [kAttentionSplitRows]
  uint32_t row_[2];                        // this lane's folded rows, and whose they are
  uint32_t reader_[2];
  // The split at hand.
  const Bf16* k_from_ = nullptr;
  const Bf16* v_from_ = nullptr;
  bool aligned_ = false;
  uint32_t rotated_for_ = ~0u;
  uint32_t first_key_ = 0, end_key_ = 0, first_tile_ = 0, end_tile_ = 0;
  // The reader that this thread watches.
  uint32_t my_begin_ = 0, my_end_ = 0;
  const uint32_t* replaced_ = nullptr;
  uint32_t replaced_count_ = 0, cursor_ = 0;
};

}  // namespace epic::attention

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_DEVICE_H_
