#include <algorithm>
#include <vector>

#include "kernels/kv_write/kv_write_internal.h"

namespace epic::internal {

void KvWriteReference(const KvWriteArgs& args, size_t begin, size_t end) {
  std::vector<float> head(args.head_dim);
  for (size_t r = begin; r < end; ++r) {
    for (uint32_t g = 0; g < args.kv_heads; ++g) {
      const float* in = args.in + r * args.in_stride + size_t{g} * args.head_dim;
      if (args.rope != nullptr) {
        RotateRow(*args.rope, args.positions[r], in, head.data());
      } else {
        std::copy(in, in + args.head_dim, head.begin());
      }
      const size_t at = g * args.head_stride + (args.first_row + r) * args.head_dim;
      for (uint32_t d = 0; d < args.head_dim; ++d) {
        if (args.dtype == DType::kF32) {
          static_cast<float*>(args.out)[at + d] = head[d];
        } else {
          static_cast<Bf16*>(args.out)[at + d] = ToBf16(head[d]);
        }
      }
    }
  }
}

}  // namespace epic::internal
