// Squared distances of values on a GPU: value_distance.h says what. A result's sum has one order: the same
// bytes in every call. Queues one launch on the caller's stream: allocates nothing, waits for nothing, owns
// nothing.
#ifndef EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_CUDA_H_
#define EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_CUDA_H_

#include "kernels/api/gpu.h"
#include "kernels/value_distance/value_distance.h"

namespace epic {

// Pointers in `args` are device memory. rows == 0 is a no-op. Errors: kInvalid, kDevice.
GpuStatus SquaredDistanceCuda(const SquaredDistanceArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_CUDA_H_
