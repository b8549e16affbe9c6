#include <algorithm>
#include <map>
#include <tuple>

#include "common/base/check.h"
#include "kernels/segment_attention/segment_attention_cuda.h"

namespace epic {
namespace {

// Readers with the same key read the same bytes.
using SplitKey = std::tuple<const void*, const void*, const uint32_t*, size_t, uint32_t, uint32_t>;

}  // namespace

std::vector<AttentionSplit> PlanLinkAttention(std::span<const KvSegment> segments) {
  std::vector<AttentionSplit> splits;
  for (uint32_t s = 0; s < segments.size(); ++s) {
    for (uint32_t row = 0; row < segments[s].rows; row += kAttentionSplitRows) splits.push_back({s, row});
  }
  return splits;
}

DecodeAttentionPlan PlanDecodeAttention(std::span<const KvSegment> segments,
                                        std::span<const std::vector<uint32_t>> row_segments,
                                        uint32_t heads_per_kv_head) {
  constexpr uint32_t kRowsOfATile = 64;
  EPIC_CHECK(heads_per_kv_head >= 1 && heads_per_kv_head <= kRowsOfATile);
  const uint32_t most_readers = kRowsOfATile / heads_per_kv_head;
  DecodeAttentionPlan plan;
  std::map<SplitKey, std::vector<AttentionReader>> by_split;
  plan.row_slots.push_back(0);
  for (uint32_t row = 0; row < row_segments.size(); ++row) {
    uint32_t slot = plan.row_slots.back();
    for (const uint32_t s : row_segments[row]) {
      const KvSegment& segment = segments[s];
      for (uint32_t first = 0; first < segment.rows; first += kAttentionSplitRows) {
        const SplitKey key{segment.k,           segment.v,    segment.row_positions,
                           segment.head_stride, segment.rows, first};
        by_split[key].push_back({row, s, slot++});
      }
    }
    plan.row_slots.push_back(slot);
  }
  for (const auto& [key, readers] : by_split) {
    for (uint32_t first = 0; first < readers.size(); first += most_readers) {
      const auto count = std::min<uint32_t>(most_readers, static_cast<uint32_t>(readers.size()) - first);
      plan.groups.push_back({static_cast<uint32_t>(plan.readers.size()), count, std::get<5>(key)});
      plan.readers.insert(plan.readers.end(), readers.begin() + first, readers.begin() + first + count);
    }
  }
  return plan;
}

}  // namespace epic
