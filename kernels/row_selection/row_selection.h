// Picks the rows that a strategy recomputes: how far fresh values are from stored ones, and the rows with the
// highest numbers. Plain functions on the host: what the GPU kernels (row_selection_cuda.h) must equal.
#ifndef EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_H_
#define EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/dtype.h"

namespace epic {

struct ValueDistanceArgs {
  const float* fresh = nullptr;  // [rows][fresh_stride]; kv_heads * head_dim per row
  size_t fresh_stride = 0;       // elements
  size_t rows = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  const Bf16* stored = nullptr;  // V of the first row in kv head 0; rows follow one another
  size_t head_stride = 0;        // elements from one kv head to the next
  float* out = nullptr;          // [rows]
};

// out[r] = sum over heads and dimensions of (fresh - stored)².
void ValueDistanceReference(const ValueDistanceArgs& args);

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
