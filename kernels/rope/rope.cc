#include "kernels/rope/rope.h"

#include <cmath>

#include "common/base/check.h"

namespace epic {

RopeTable::RopeTable(RopePairs pairs, std::span<const double> frequencies, uint32_t max_position,
                     double scale)
    : pairs_(pairs), half_dim_(frequencies.size()), max_position_(max_position) {
  cos_.resize(size_t{max_position} * half_dim_);
  sin_.resize(size_t{max_position} * half_dim_);
  for (uint32_t position = 0; position < max_position; ++position) {
    float* cos_row = cos_.data() + size_t{position} * half_dim_;
    float* sin_row = sin_.data() + size_t{position} * half_dim_;
    for (size_t j = 0; j < half_dim_; ++j) {
      const double angle = position * frequencies[j];
      cos_row[j] = static_cast<float>(std::cos(angle) * scale);
      sin_row[j] = static_cast<float>(std::sin(angle) * scale);
    }
  }
}

void RotateRow(const RopeTable& table, uint32_t position, const float* in, float* out) {
  EPIC_CHECK(position < table.max_position());
  const size_t half = table.half_dim();
  const float* cos = table.cos(position);
  const float* sin = table.sin(position);
  const bool norm = table.pairs() == RopePairs::kNorm;
  for (size_t j = 0; j < half; ++j) {
    const size_t first = norm ? 2 * j : j;
    const size_t second = norm ? 2 * j + 1 : j + half;
    const float a = in[first];
    const float b = in[second];
    out[first] = a * cos[j] - b * sin[j];
    out[second] = a * sin[j] + b * cos[j];
  }
}

}  // namespace epic
