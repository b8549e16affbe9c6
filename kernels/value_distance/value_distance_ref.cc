#include "kernels/value_distance/value_distance_internal.h"

namespace epic::internal {
namespace {

double Element(const void* base, DType dtype, size_t index) {
  if (base == nullptr) return 0;
  if (dtype == DType::kF32) return static_cast<const float*>(base)[index];
  return ToF32(static_cast<const Bf16*>(base)[index]);
}

}  // namespace

void SquaredDistanceReference(const SquaredDistanceArgs& args) {
  for (uint32_t head = 0; head < args.kv_heads; ++head) {
    for (size_t row = 0; row < args.rows; ++row) {
      double sum = 0;
      for (uint32_t d = 0; d < args.head_dim; ++d) {
        const size_t at = row * args.head_dim + d;
        const double difference = Element(args.a.data, args.dtype, head * args.a.head_stride + at) -
                                  Element(args.b.data, args.dtype, head * args.b.head_stride + at);
        sum += difference * difference;
      }
      args.out[head * args.out_stride + row] = static_cast<float>(sum);
    }
  }
}

}  // namespace epic::internal
