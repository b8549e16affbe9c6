#include <cmath>

#include "kernels/rms_norm/rms_norm_internal.h"

namespace epic::internal {

void RmsNormReference(const RmsNormArgs& args, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    for (size_t g = 0; g < args.groups; ++g) {
      const float* x = args.x + r * args.x_stride + g * args.dim;
      float* out = args.out + r * args.out_stride + g * args.dim;
      double sum = 0;
      for (size_t i = 0; i < args.dim; ++i) sum += double{x[i]} * x[i];
      const double factor = 1.0 / std::sqrt(sum / static_cast<double>(args.dim) + args.epsilon);
      for (size_t i = 0; i < args.dim; ++i) out[i] = static_cast<float>(x[i] * factor * args.weight[i]);
    }
  }
}

}  // namespace epic::internal
