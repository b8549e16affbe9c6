// The implementations behind segment_attention.h: each does the whole call and splits it over the pool. Only
// segment_attention.cc looks here; it has checked the arguments.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_INTERNAL_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_INTERNAL_H_

#include "kernels/segment_attention/segment_attention.h"

namespace epic::internal {

// Two passes over all visible keys, in double.
void SegmentAttentionReference(const SegmentAttentionArgs& args, ThreadPool* pool);

// Tiles by Highway, online softmax in f32.
void SegmentAttentionCpu(const SegmentAttentionArgs& args, ThreadPool* pool);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_INTERNAL_H_
