#include <cmath>

#include "kernels/swiglu/swiglu_internal.h"

namespace epic::internal {

void SwiGluReference(const SwiGluArgs& args, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    for (size_t i = 0; i < args.dim; ++i) {
      const double gate = args.gate[r * args.in_stride + i];
      const double up = args.up[r * args.in_stride + i];
      args.out[r * args.out_stride + i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * up);
    }
  }
}

}  // namespace epic::internal
