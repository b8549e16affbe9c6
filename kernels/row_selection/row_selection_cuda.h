// Picking rows on a GPU: row_selection.h says what. It is exact: the same rows in every call.
// Queues one launch on the caller's stream: allocates nothing, waits for nothing, owns
// nothing.
#ifndef EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_H_
#define EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/api/gpu.h"
#include "kernels/row_selection/row_selection.h"

namespace epic {

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
