// Picking rows on a GPU: row_selection.h says what. Sums have one order, and picking is exact: the same bytes
// in every call.
#ifndef EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_H_
#define EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/gpu.h"
#include "kernels/row_selection/row_selection.h"

namespace epic {

// Pointers in `args` are device memory. rows == 0 is a no-op. Errors: kInvalid, kDevice.
GpuStatus ValueDistanceCuda(const ValueDistanceArgs& args, GpuStream stream);

// Pointers are device memory.
struct SelectRowsArgs {
  const float* values = nullptr;        // [...]
  const uint8_t* eligible = nullptr;    // one byte a value, 0 = never; null: all are
  const SelectGroup* groups = nullptr;  // [group_count]
  uint32_t group_count = 0;
  uint32_t* out = nullptr;         // picked rows of each group from its out_begin on, ascending
  uint32_t* out_counts = nullptr;  // [group_count]: how many
};

// One block a group. Errors: kInvalid, kDevice.
GpuStatus SelectRowsCuda(const SelectRowsArgs& args, GpuStream stream);

}  // namespace epic

#endif  // EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_H_
