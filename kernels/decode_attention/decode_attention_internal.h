// What the implementations behind decode_attention.h share: the plan of a call. Only this folder looks here.
//
// The plan is made by the calling thread and constant while workers run; units write disjoint partial
// results.
#ifndef EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_INTERNAL_H_
#define EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_INTERNAL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/decode_attention/decode_attention.h"

namespace epic::internal {

// Rows of a segment that one unit attends: results are joined at these borders, so they are part of the
// arithmetic.
constexpr uint32_t kRangeRows = 1024;
constexpr uint32_t RangesOf(const KvSegment& segment) { return (segment.rows + kRangeRows - 1) / kRangeRows; }

// A row and one of its segments.
struct DecodeMember {
  uint32_t row = 0;
  uint32_t segment = 0;  // index in the row's list
  size_t partial = 0;    // of its first range, in results of [heads][head_dim + 2]
};

// One range of memory under one kv head, for the members that read it.
struct DecodeUnit {
  uint32_t kv_head = 0;
  uint32_t range = 0;
  size_t member_begin = 0;
  size_t member_end = 0;
};

struct DecodePlan {
  std::vector<DecodeMember> members;         // those of the same memory side by side
  std::vector<DecodeUnit> units;             // the longest last
  std::vector<std::vector<size_t>> results;  // of each row, in the order in which they are joined
  size_t result_count = 0;
};
DecodePlan PlanDecode(const DecodeAttentionArgs& args);

void DecodeAttentionReference(const DecodeAttentionArgs& args, ThreadPool* pool);
void DecodeAttentionCpu(const DecodeAttentionArgs& args, ThreadPool* pool);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_DECODE_ATTENTION_DECODE_ATTENTION_INTERNAL_H_
