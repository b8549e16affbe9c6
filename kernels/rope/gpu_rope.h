// The cos/sin table of rope.h as GPU kernels read it. Plain pointers to device memory that somebody else
// owns and keeps while launches that have them run; copied by value into arguments. Fills no table: rope.h
// does.
#ifndef EPIC_KERNELS_ROPE_GPU_ROPE_H_
#define EPIC_KERNELS_ROPE_GPU_ROPE_H_

#include <cstdint>

#include "kernels/rope/rope.h"

namespace epic {

struct GpuRope {
  const float* cos = nullptr;  // [max_position][half_dim], RopeTable::cos(0)
  const float* sin = nullptr;  // the same shape
  uint32_t half_dim = 0;
  uint32_t max_position = 0;
  RopePairs pairs = RopePairs::kNorm;
};

}  // namespace epic

#endif  // EPIC_KERNELS_ROPE_GPU_ROPE_H_
