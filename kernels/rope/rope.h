// Rotary position embedding: one cos/sin table by integer position, built in double and kept in f32, and the
// rotation of rows. NORM pairs (2j, 2j+1); NEOX pairs (j, j + head_dim/2).
//
// The table is immutable and shared by threads; whoever makes it keeps it for as long as kernels use it.
// Which frequencies a model has (linear, Llama-3, YaRN) is not known here: the caller gives them.
#ifndef EPIC_KERNELS_ROPE_ROPE_H_
#define EPIC_KERNELS_ROPE_ROPE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/dtype.h"

namespace epic {

enum class RopePairs : uint8_t { kNorm, kNeox };

// cos and sin of position * frequency[j], times `scale` (YaRN's attention factor; 1 otherwise).
// Immutable after construction, shared by threads.
class RopeTable {
 public:
  // frequencies: [head_dim/2] radians per position. Positions 0..max_position-1.
  RopeTable(RopePairs pairs, std::span<const double> frequencies, uint32_t max_position, double scale);
  // Memory of such a table.
  static uint64_t BytesOf(size_t half_dim, uint32_t max_position) {
    return uint64_t{2} * sizeof(float) * half_dim * max_position;
  }
  RopePairs pairs() const { return pairs_; }
  size_t half_dim() const { return half_dim_; }
  uint32_t max_position() const { return max_position_; }
  // [head_dim/2] each. REQUIRES: position < max_position().
  const float* cos(uint32_t position) const { return cos_.data() + size_t{position} * half_dim_; }
  const float* sin(uint32_t position) const { return sin_.data() + size_t{position} * half_dim_; }

 private:
  RopePairs pairs_;
  size_t half_dim_;
  uint32_t max_position_;
  std::vector<float> cos_;
  std::vector<float> sin_;
};

// Rotates one head vector in f32. `in` and `out` may be the same. Shape: [head_dim].
void RotateRow(const RopeTable& table, uint32_t position, const float* in, float* out);

}  // namespace epic

#endif  // EPIC_KERNELS_ROPE_ROPE_H_
