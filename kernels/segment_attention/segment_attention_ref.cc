#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/api/parallel.h"
#include "kernels/segment_attention/segment_attention_internal.h"

namespace epic::internal {
namespace {

double Element(const void* base, DType dtype, size_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(base)[index];
  return ToF32(static_cast<const Bf16*>(base)[index]);
}

bool IsVisible(const KvSegment& segment, uint32_t row, uint32_t q_position) {
  if (row < segment.first_row) return false;
  const uint32_t* end = segment.replaced + segment.replaced_count;
  if (segment.replaced != nullptr && std::binary_search(segment.replaced, end, row)) return false;
  const uint32_t at = segment.row_positions != nullptr ? segment.row_positions[row] : segment.position + row;
  return at <= q_position;
}

// One visible key: where it is, and its score against the row's query.
struct Key {
  const KvSegment* segment;
  size_t offset;  // elements from the start of v
  double score;
};

void AttendHead(const SegmentAttentionArgs& args, size_t r, uint32_t head) {
  const uint32_t kv_head = head / (args.heads / args.kv_heads);
  const float* q = args.q + r * args.q_stride + size_t{head} * args.head_dim;
  const uint32_t q_position = args.q_positions[r];
  std::vector<Key> keys;
  std::vector<float> rotated(args.head_dim);
  double highest = -std::numeric_limits<double>::infinity();
  for (const KvSegment& segment : args.segments) {
    const bool is_private = segment.row_positions != nullptr;
    // Nothing of a shared segment that begins after the query is visible.
    if (!is_private && segment.position > q_position) continue;
    RotateRow(*args.rope, is_private ? q_position : q_position - segment.position + segment.stored_position,
              q, rotated.data());
    for (uint32_t row = 0; row < segment.rows; ++row) {
      if (!IsVisible(segment, row, q_position)) continue;
      const size_t offset = kv_head * segment.head_stride + size_t{row} * args.head_dim;
      double dot = 0;
      for (uint32_t d = 0; d < args.head_dim; ++d) {
        dot += double{rotated[d]} * Element(segment.k, segment.dtype, offset + d);
      }
      keys.push_back({&segment, offset, dot * args.scale});
      highest = std::max(highest, keys.back().score);
    }
  }
  std::vector<double> sum(args.head_dim, 0.0);
  double total = 0;
  for (const Key& key : keys) {
    const double weight = std::exp(key.score - highest);
    total += weight;
    for (uint32_t d = 0; d < args.head_dim; ++d) {
      sum[d] += weight * Element(key.segment->v, key.segment->dtype, key.offset + d);
    }
  }
  float* out = args.out + r * args.out_stride + size_t{head} * args.head_dim;
  for (uint32_t d = 0; d < args.head_dim; ++d) {
    out[d] = keys.empty() ? 0.0f : static_cast<float>(sum[d] / total);
  }
}

}  // namespace

void SegmentAttentionReference(const SegmentAttentionArgs& args, ThreadPool* pool) {
  ForRowBlocks(pool, args.rows, 1, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      for (uint32_t head = 0; head < args.heads; ++head) AttendHead(args, r, head);
    }
  });
}

}  // namespace epic::internal
