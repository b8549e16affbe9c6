// How far rows of values lie from other rows: what strategies that choose rows by their values measure. A
// result depends on its row and head only. Stateless; any thread. What is picked by it is not here
// (row_selection, or a strategy's policy).
#ifndef EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_H_
#define EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/dispatch.h"
#include "kernels/api/dtype.h"

namespace epic {

// The values of some rows of one layer: those of the first row at `data`.
struct ValueRows {
  const void* data = nullptr;  // [kv_heads][head_stride/head_dim rows][head_dim]
  size_t head_stride = 0;      // elements from one kv head to the next
};

struct SquaredDistanceArgs {
  ValueRows a;
  ValueRows b;  // null data: zeros, and the result is the squared length of `a`
  DType dtype = DType::kBf16;
  size_t rows = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  // [kv_heads][out_stride]: the squared L2 distance of each row's values of each head. NaN or infinite where
  // a value is.
  float* out = nullptr;
  size_t out_stride = 0;  // elements
};

// rows == 0 is a no-op. REQUIRES: out_stride >= rows; a head's rows do not reach into the next one's:
// head_stride >= rows * head_dim of both sides, where there is more than one head.
void SquaredDistance(const SquaredDistanceArgs& args, KernelPath path = KernelPath::kAuto);

}  // namespace epic

#endif  // EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_H_
