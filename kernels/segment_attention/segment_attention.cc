#include "kernels/segment_attention/segment_attention.h"

#include "common/base/check.h"
#include "kernels/segment_attention/segment_attention_internal.h"

namespace epic {

void SegmentAttention(const SegmentAttentionArgs& args, ThreadPool* pool, KernelPath path) {
  if (args.rows == 0) return;
  EPIC_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  EPIC_CHECK(args.rope != nullptr && args.rope->half_dim() * 2 == args.head_dim);
  if (path == KernelPath::kReference) return internal::SegmentAttentionReference(args, pool);
  internal::SegmentAttentionCpu(args, pool);
}

}  // namespace epic
