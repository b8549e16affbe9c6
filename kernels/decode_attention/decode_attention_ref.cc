#include "kernels/decode_attention/decode_attention_internal.h"

namespace epic::internal {

// A row at a time, by the reference of segment_attention: one softmax over all that the row sees, in double.
void DecodeAttentionReference(const DecodeAttentionArgs& args, ThreadPool* pool) {
  for (const DecodeRow& row : args.rows) {
    SegmentAttentionArgs one;
    one.q = row.q;
    one.q_stride = size_t{args.heads} * args.head_dim;
    one.q_positions = &row.position;
    one.rows = 1;
    one.heads = args.heads;
    one.kv_heads = args.kv_heads;
    one.head_dim = args.head_dim;
    one.scale = args.scale;
    one.segments = row.segments;
    one.rope = args.rope;
    one.out = row.out;
    one.out_stride = one.q_stride;
    SegmentAttention(one, pool, KernelPath::kReference);
  }
}

}  // namespace epic::internal
