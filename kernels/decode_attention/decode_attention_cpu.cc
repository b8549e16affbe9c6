// Decode attention by Highway, in f32 throughout. A unit is a range of one memory under one kv head; the
// heads of the members that read it are folded into rows (member * group + head). Tiles of 128 keys begin at
// fixed rows of the memory, so a tile holds the same keys for every member, and those that a member does not
// see weigh exactly zero for it. Many rows take packed tiles, few rows read them in place, to the same bytes.
#include <algorithm>
#include <cstring>
#include <limits>

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/api/scratch.h"
#include "kernels/api/simd_targets.h"
#include "kernels/decode_attention/decode_attention_internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decode_attention/decode_attention_cpu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"
#include "kernels/decode_attention/tile_in_place-inl.h"
#include "kernels/rope/rotate-inl.h"
#include "kernels/segment_attention/attention_tile-inl.h"

#ifndef EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_CPU_ONCE_
#define EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_CPU_ONCE_
namespace epic::internal {

// A call, as its workers see it.
struct DecodeCall {
  const DecodeAttentionArgs* args;
  const DecodePlan* plan;
  float* results;  // [result_count][heads][head_dim + 2]: sums, shift of scores, total weight
  size_t group() const { return args->heads / args->kv_heads; }
  float* Result(size_t index, size_t head) const {
    return results + (index * args->heads + head) * (args->head_dim + 2);
  }
};

// What a member sees of its segment: rows [first, end) but the replaced ones.
struct SeenRows {
  uint32_t first;
  uint32_t end;
  const uint32_t* replaced_begin;
  const uint32_t* replaced_end;
};

inline SeenRows SeenBy(const DecodeRow& row, const KvSegment& segment) {
  SeenRows seen = {segment.first_row, 0, segment.replaced, segment.replaced + segment.replaced_count};
  if (segment.row_positions != nullptr) {
    const uint32_t* end = segment.row_positions + segment.rows;
    seen.end = static_cast<uint32_t>(std::upper_bound(segment.row_positions, end, row.position) -
                                     segment.row_positions);
  } else if (row.position >= segment.position) {
    seen.end = std::min(segment.rows, row.position - segment.position + 1);
  }
  return seen;
}

}  // namespace epic::internal
#endif  // EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_CPU_ONCE_

HWY_BEFORE_NAMESPACE();
namespace epic {
namespace HWY_NAMESPACE {

using internal::DecodeCall;
using internal::DecodeMember;
using internal::DecodeUnit;
using internal::SeenRows;

const KvSegment& SegmentOf(const DecodeCall& call, size_t member) {
  const DecodeMember& m = call.plan->members[member];
  return call.args->rows[m.row].segments[m.segment];
}

void RotateMember(const DecodeCall& call, const DecodeUnit& unit, size_t member, float* out) {
  const DecodeAttentionArgs& args = *call.args;
  const DecodeRow& row = args.rows[call.plan->members[member].row];
  const KvSegment& segment = SegmentOf(call, member);
  const float scale = args.scale * 1.44269504088896340736f;
  const uint32_t turn = segment.row_positions != nullptr
                            ? row.position
                            : row.position - segment.position + segment.stored_position;
  const size_t group = call.group();
  for (size_t head = 0; head < group; ++head) {
    RotateScaled(*args.rope, turn, scale, row.q + (unit.kv_head * group + head) * args.head_dim,
                 out + head * args.head_dim);
  }
}

// Keys [at, at + count) of a tile: those that a member does not see become minus infinity in its score rows.
// Returns how many keys from the tile's start it may see; 0 when it sees none.
size_t MaskMember(const SeenRows& seen, uint32_t at, size_t count, size_t heads, float* scores) {
  const uint32_t begin = std::max(seen.first, at);
  const uint32_t end = std::min(seen.end, at + static_cast<uint32_t>(count));
  for (size_t head = 0; head < heads; ++head) {
    float* row = scores + head * kTileKeys;
    std::fill(row, row + (begin - at), kMinusInfinity);
    for (const uint32_t* r = std::lower_bound(seen.replaced_begin, seen.replaced_end, begin);
         r != seen.replaced_end && *r < end; ++r) {
      row[*r - at] = kMinusInfinity;
    }
  }
  return end - at;
}

bool SeesAny(const SeenRows& seen, uint32_t at, size_t count) {
  const uint32_t begin = std::max(seen.first, at);
  const uint32_t end = std::min(seen.end, at + static_cast<uint32_t>(count));
  if (begin >= end) return false;
  const uint32_t* first = std::lower_bound(seen.replaced_begin, seen.replaced_end, begin);
  const uint32_t* last = std::lower_bound(first, seen.replaced_end, end);
  return static_cast<size_t>(last - first) < end - begin;
}

// weights · v of one member when some value of the tile is not finite: keys of weight zero are left out.
void AddSeenValues(const TaskMemory& memory, size_t row, size_t count) {
  const DF d;
  const float* weights = memory.scores + row * kTileKeys;
  float* sums = memory.sums + row * memory.padded_dim;
  for (size_t dim = 0; dim < memory.padded_dim; dim += kLanes) {
    const float* values =
        memory.values + dim / kPanelColumns * kTileKeys * kPanelColumns + dim % kPanelColumns;
    auto sum = hn::Zero(d);
    for (size_t key = 0; key < count; ++key) {
      if (weights[key] == 0) continue;
      sum = hn::MulAdd(hn::Set(d, weights[key]), hn::LoadU(d, values + key * kPanelColumns), sum);
    }
    hn::StoreU(hn::Add(hn::LoadU(d, sums + dim), sum), d, sums + dim);
  }
}

// A tile of a segment where it lies, and the one behind it in its range.
struct TileInPlace {
  TileInPlace(const KvSegment& segment, size_t head_offset, size_t head_dim, uint32_t at,
              uint32_t range_end) {
    const size_t row_bytes = head_dim * SizeOf(segment.dtype);
    const size_t offset = head_offset * SizeOf(segment.dtype) + at * row_bytes;
    const size_t count = std::min<size_t>(kTileKeys, range_end - at);
    keys = {static_cast<const char*>(segment.k) + offset, count, row_bytes};
    values = {static_cast<const char*>(segment.v) + offset, count, row_bytes};
    const size_t rest = std::min<size_t>(kTileKeys, range_end - at - count);
    next_keys = {keys.Row(count), rest, row_bytes};
    next_values = {values.Row(count), rest, row_bytes};
  }
  RowsInPlace keys, values, next_keys, next_values;
};

// Members [begin, end) of a unit, all of which see some keys of the tile.
struct TileMembers {
  const SeenRows* seen;  // of all members of the unit
  size_t begin;
  size_t end;
};

// Scores become weights: those of keys that a member does not see are zero. `ahead` is fetched meanwhile.
void WeighMembers(const DecodeCall& call, const TaskMemory& memory, const TileMembers& members,
                  const KeyTile& tile, Fetcher ahead) {
  const size_t group = call.group();
  const size_t width = (tile.count + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  const size_t rows = (members.end - members.begin) * group;
  const size_t lines = (ahead.lines() + rows - 1) / rows;
  for (size_t member = members.begin; member < members.end; ++member) {
    float* scores = memory.scores + member * group * kTileKeys;
    const size_t visible = MaskMember(members.seen[member], tile.rows[0], tile.count, group, scores);
    for (size_t head = 0; head < group; ++head) {
      ahead.AskFar(lines);
      WeightRow(memory, member * group + head, visible, width);
    }
  }
}

// One packed tile; the next one is fetched meanwhile.
void AttendMembers(const DecodeCall& call, const TaskMemory& memory, const TileMembers& members,
                   const KeyTile& tile, const TileInPlace& place, bool finite) {
  const size_t group = call.group();
  const size_t head_dim = call.args->head_dim;
  const size_t first = members.begin * group;
  const size_t rows = (members.end - members.begin) * group;
  const size_t key_panels = (tile.count + kPanelColumns - 1) / kPanelColumns;
  Fetcher next_keys(place.next_keys);
  const size_t lines = (next_keys.lines() + key_panels - 1) / key_panels;
  const PlainSink<false> scores{memory.scores + first * kTileKeys, kTileKeys};
  for (size_t panel = 0; panel < key_panels; ++panel) {
    next_keys.AskFar(lines);
    MicroBlock(rows, memory.q + first * head_dim, head_dim, memory.keys + panel * head_dim * kPanelColumns,
               head_dim * kPanelColumns, 1, head_dim, scores.AtPanel(panel));
  }
  WeighMembers(call, memory, members, tile, Fetcher(place.next_values));
  if (finite) {
    const PlainSink<true> sums{memory.sums + first * memory.padded_dim, memory.padded_dim};
    MicroBlock(rows, memory.scores + first * kTileKeys, kTileKeys, memory.values, kTileKeys * kPanelColumns,
               memory.padded_dim / kPanelColumns, tile.count, sums);
    return;
  }
  for (size_t row = first; row < first + rows; ++row) AddSeenValues(memory, row, tile.count);
}

// The same with keys and values where they lie, for few rows.
void AttendMembersInPlace(const DecodeCall& call, const TaskMemory& memory, const TileMembers& members,
                          const KeyTile& tile, const TileInPlace& place, DType dtype) {
  const size_t head_dim = call.args->head_dim;
  const size_t first = members.begin * call.group();
  const size_t rows = (members.end - members.begin) * call.group();
  float* const scores = memory.scores + first * kTileKeys;
  ScoreInPlace(place.keys, dtype, rows, head_dim, memory.q + first * head_dim, place.values, scores);
  WeighMembers(call, memory, members, tile, Fetcher({}));
  AddInPlace(place.values, dtype, rows, head_dim, scores, memory.padded_dim, place.next_keys,
             memory.sums + first * memory.padded_dim);
}

void AttendRange(const DecodeCall& call, const DecodeUnit& unit, const TaskMemory& memory,
                 const SeenRows* seen) {
  const KvSegment& segment = SegmentOf(call, unit.member_begin);
  const size_t members = unit.member_end - unit.member_begin;
  const size_t head_dim = call.args->head_dim;
  const size_t head_offset = unit.kv_head * segment.head_stride;
  const uint32_t range_end = std::min(segment.rows, (unit.range + 1) * internal::kRangeRows);
  KeyTile tile;
  for (uint32_t at = unit.range * internal::kRangeRows; at < range_end; at += kTileKeys) {
    const TileInPlace place(segment, head_offset, head_dim, at, range_end);
    tile.count = place.keys.count;
    for (size_t i = 0; i < tile.count; ++i) tile.rows[i] = at + static_cast<uint32_t>(i);
    bool packed = false;
    bool finite = true;
    for (size_t begin = 0; begin < members;) {
      if (!SeesAny(seen[begin], at, tile.count)) {
        ++begin;
        continue;
      }
      size_t end = begin + 1;
      while (end < members && SeesAny(seen[end], at, tile.count)) ++end;
      if (CanAttendInPlace((end - begin) * call.group(), head_dim, segment.dtype)) {
        AttendMembersInPlace(call, memory, {seen, begin, end}, tile, place, segment.dtype);
      } else {
        if (!packed) {
          PackKeys(segment, head_offset, tile, head_dim, memory.keys);
          finite = PackValues(segment, head_offset, tile, head_dim, memory.padded_dim, memory.values);
          packed = true;
        }
        AttendMembers(call, memory, {seen, begin, end}, tile, place, finite);
      }
      begin = end;
    }
  }
}

void RunDecodeUnit(const DecodeCall& call, const DecodeUnit& unit) {
  static thread_local Scratch scratch;
  static thread_local Scratch seen_scratch;
  const size_t head_dim = call.args->head_dim;
  const size_t group = call.group();
  const size_t members = unit.member_end - unit.member_begin;
  const size_t folded = members * group;
  const TaskMemory memory = Carve(scratch.Get<float>(TaskFloats(folded, head_dim)), folded, head_dim);
  auto* seen = seen_scratch.Get<SeenRows>(members);
  for (size_t m = 0; m < members; ++m) {
    const size_t member = unit.member_begin + m;
    seen[m] = internal::SeenBy(call.args->rows[call.plan->members[member].row], SegmentOf(call, member));
    // Behind the row there is nothing to rotate for.
    if (seen[m].end > seen[m].first) RotateMember(call, unit, member, memory.q + m * group * head_dim);
  }
  AttendRange(call, unit, memory, seen);
  for (size_t m = 0; m < members; ++m) {
    const size_t index = call.plan->members[unit.member_begin + m].partial + unit.range;
    for (size_t head = 0; head < group; ++head) {
      const size_t row = m * group + head;
      float* result = call.Result(index, unit.kv_head * group + head);
      std::copy_n(memory.sums + row * memory.padded_dim, head_dim, result);
      result[head_dim] = memory.shift[row];
      result[head_dim + 1] = TotalOf(memory, row);
    }
  }
}

// Joins the results of one row: sums and totals brought to the highest shift of all, in order.
void JoinDecodeRow(const DecodeCall& call, size_t row) {
  const DF d;
  const size_t head_dim = call.args->head_dim;
  const std::vector<size_t>& results = call.plan->results[row];
  for (size_t head = 0; head < call.args->heads; ++head) {
    float* out = call.args->rows[row].out + head * head_dim;
    float highest = kMinusInfinity;
    for (const size_t index : results) highest = std::max(highest, call.Result(index, head)[head_dim]);
    std::fill_n(out, head_dim, 0.0f);
    float total = 0;
    for (const size_t index : results) {
      const float* result = call.Result(index, head);
      if (result[head_dim + 1] == 0) continue;  // nothing of it was seen
      const float factor = hn::GetLane(Exp2(hn::Set(d, result[head_dim] - highest)));
      total += factor * result[head_dim + 1];
      for (size_t i = 0; i < head_dim; ++i) out[i] += factor * result[i];
    }
    if (total == 0) continue;
    const float factor = 1.0f / total;
    for (size_t i = 0; i < head_dim; ++i) out[i] *= factor;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace epic
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace epic {
HWY_EXPORT(RunDecodeUnit);
HWY_EXPORT(JoinDecodeRow);

namespace internal {

void DecodeAttentionCpu(const DecodeAttentionArgs& args, ThreadPool* pool) {
  static thread_local Scratch scratch;
  const DecodePlan plan = PlanDecode(args);
  const DecodeCall call = {&args, &plan,
                           scratch.Get<float>(plan.result_count * args.heads * (args.head_dim + 2))};
  ForRowBlocks(pool, plan.units.size(), 1, [&](size_t begin, size_t end) {
    for (size_t unit = end; unit > begin; --unit)
      HWY_DYNAMIC_DISPATCH(RunDecodeUnit)(call, plan.units[unit - 1]);
  });
  for (size_t row = 0; row < args.rows.size(); ++row) HWY_DYNAMIC_DISPATCH(JoinDecodeRow)(call, row);
}

}  // namespace internal
}  // namespace epic
#endif  // HWY_ONCE
