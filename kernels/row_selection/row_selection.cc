#include "kernels/row_selection/row_selection.h"

#include <algorithm>
#include <cmath>

namespace epic {

std::vector<uint32_t> SelectRowsReference(std::span<const float> values, std::span<const uint8_t> eligible,
                                          const SelectGroup& group) {
  std::vector<uint32_t> rows;
  for (uint32_t row = group.begin; row < group.end; ++row) {
    if (eligible.empty() || eligible[row] != 0) rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
    const bool a_is_nan = std::isnan(values[a]), b_is_nan = std::isnan(values[b]);
    if (a_is_nan || b_is_nan) return a_is_nan && !b_is_nan;
    return values[a] > values[b];
  });
  if (rows.size() > group.count) rows.resize(group.count);
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace epic
