#include "kernels/decode_attention/decode_attention.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include "common/base/check.h"
#include "kernels/decode_attention/decode_attention_internal.h"

namespace epic {
namespace internal {
namespace {

constexpr size_t kFoldedRows = 192;  // of one unit: what stays in the second-level cache

// Where a segment lies. Total order, so that members of the same memory can be brought together.
auto PlaceOf(const KvSegment& segment) {
  return std::make_tuple(reinterpret_cast<uintptr_t>(segment.k), reinterpret_cast<uintptr_t>(segment.v),
                         segment.dtype, segment.head_stride, segment.rows,
                         reinterpret_cast<uintptr_t>(segment.row_positions));
}

const KvSegment& SegmentOf(const DecodeAttentionArgs& args, const DecodeMember& member) {
  return args.rows[member.row].segments[member.segment];
}

// Units over members [begin, end), which read the same memory.
void AddUnits(const DecodeAttentionArgs& args, size_t begin, size_t end, DecodePlan* plan) {
  const size_t group = args.heads / args.kv_heads;
  const size_t most = std::max(kFoldedRows / group, size_t{1});
  const uint32_t ranges = RangesOf(SegmentOf(args, plan->members[begin]));
  for (size_t first = begin; first < end; first += most) {
    for (uint32_t range = 0; range < ranges; ++range) {
      for (uint32_t kv_head = 0; kv_head < args.kv_heads; ++kv_head) {
        plan->units.push_back({kv_head, range, first, std::min(end, first + most)});
      }
    }
  }
}

}  // namespace

DecodePlan PlanDecode(const DecodeAttentionArgs& args) {
  DecodePlan plan;
  plan.results.resize(args.rows.size());
  for (uint32_t row = 0; row < args.rows.size(); ++row) {
    for (uint32_t s = 0; s < args.rows[row].segments.size(); ++s) {
      const uint32_t ranges = RangesOf(args.rows[row].segments[s]);
      if (ranges == 0) continue;
      plan.members.push_back({row, s, plan.result_count});
      for (uint32_t range = 0; range < ranges; ++range) plan.results[row].push_back(plan.result_count++);
    }
  }
  std::stable_sort(plan.members.begin(), plan.members.end(), [&](const auto& a, const auto& b) {
    return PlaceOf(SegmentOf(args, a)) < PlaceOf(SegmentOf(args, b));
  });
  for (size_t begin = 0; begin < plan.members.size();) {
    const auto place = PlaceOf(SegmentOf(args, plan.members[begin]));
    size_t end = begin + 1;
    while (end < plan.members.size() && PlaceOf(SegmentOf(args, plan.members[end])) == place) ++end;
    AddUnits(args, begin, end, &plan);
    begin = end;
  }
  const auto cost = [&](const DecodeUnit& unit) {
    const uint32_t rows = SegmentOf(args, plan.members[unit.member_begin]).rows - unit.range * kRangeRows;
    // Packing a tile costs about as much as eight members that use it.
    return std::min(rows, kRangeRows) * (8 + unit.member_end - unit.member_begin);
  };
  std::stable_sort(plan.units.begin(), plan.units.end(),
                   [&](const DecodeUnit& a, const DecodeUnit& b) { return cost(a) < cost(b); });
  return plan;
}

}  // namespace internal

void DecodeAttention(const DecodeAttentionArgs& args, ThreadPool* pool, KernelPath path) {
  if (args.rows.empty()) return;
  EPIC_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  EPIC_CHECK(args.rope != nullptr && args.rope->half_dim() * 2 == args.head_dim);
  if (path == KernelPath::kReference) return internal::DecodeAttentionReference(args, pool);
  internal::DecodeAttentionCpu(args, pool);
}

}  // namespace epic
