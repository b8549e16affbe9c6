// Picks the rows that a strategy recomputes: those with the highest numbers, which others measured
// (value_distance, attention_mass). A plain function on the host: what the GPU kernel
// (row_selection_cuda.h) must equal. Stateless; any thread.
#ifndef EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_H_
#define EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace epic {

// Picks `count` rows among values [begin, end): those with the highest values, the lowest row first among
// equals. NaN is above everything. Fewer where fewer are eligible.
struct SelectGroup {
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t count = 0;
  uint32_t out_begin = 0;  // where its rows go in the output; room for `count`
};

// The picked rows of one group, ascending. `eligible` (one byte a value, 0 = never) may be empty: all are.
std::vector<uint32_t> SelectRowsReference(std::span<const float> values, std::span<const uint8_t> eligible,
                                          const SelectGroup& group);

}  // namespace epic

#endif  // EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_H_
