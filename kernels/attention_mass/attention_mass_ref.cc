#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_mass/attention_mass_internal.h"

namespace epic::internal {
namespace {

double Element(const void* base, DType dtype, size_t index) {
  if (dtype == DType::kF32) return static_cast<const float*>(base)[index];
  return ToF32(static_cast<const Bf16*>(base)[index]);
}

bool IsHidden(const KvSegment& segment, uint32_t row) {
  if (row < segment.first_row) return true;
  return segment.replaced != nullptr &&
         std::binary_search(segment.replaced, segment.replaced + segment.replaced_count, row);
}

struct Weight {
  uint32_t position;
  bool shared;
  double value;
};

// The weights of one row and head over `segments`; false when one is not a number.
bool WeightsOf(const SegmentAttentionArgs& args, std::span<const KvSegment> segments, size_t r, uint32_t head,
               std::vector<Weight>* weights) {
  const uint32_t kv_head = head / (args.heads / args.kv_heads);
  const float* q = args.q + r * args.q_stride + size_t{head} * args.head_dim;
  const uint32_t at = args.q_positions[r];
  std::vector<float> rotated(args.head_dim);
  weights->clear();
  for (const KvSegment& segment : segments) {
    const bool shared = segment.row_positions == nullptr;
    if (shared && segment.position > at) continue;
    RotateRow(*args.rope, shared ? at - segment.position + segment.stored_position : at, q, rotated.data());
    for (uint32_t row = 0; row < segment.rows; ++row) {
      const uint32_t position = shared ? segment.position + row : segment.row_positions[row];
      if (IsHidden(segment, row) || position > at) continue;
      const size_t offset = kv_head * segment.head_stride + size_t{row} * args.head_dim;
      double dot = 0;
      for (uint32_t d = 0; d < args.head_dim; ++d) {
        dot += double{rotated[d]} * Element(segment.k, segment.dtype, offset + d);
      }
      weights->push_back({position, shared, dot * args.scale});
    }
  }
  double highest = -std::numeric_limits<double>::infinity();
  for (const Weight& weight : *weights) highest = std::max(highest, weight.value);
  double total = 0;
  for (Weight& weight : *weights) total += weight.value = std::exp(weight.value - highest);
  for (Weight& weight : *weights) weight.value /= total;
  return weights->empty() || std::isfinite(total);
}

uint64_t Units(double weight) { return static_cast<uint64_t>(std::llround(weight / kAttentionMassUnit)); }

}  // namespace

bool AttentionMassReference(const AttentionMassArgs& args) {
  bool finite = true;
  std::vector<Weight> weights;
  for (size_t r = 0; r < args.attention.rows; ++r) {
    for (uint32_t head = 0; head < args.attention.heads; ++head) {
      if (!WeightsOf(args.attention, args.attention.segments, r, head, &weights)) {
        finite = false;
        continue;
      }
      for (const Weight& weight : weights) {
        args.mass[head * args.mass_stride + weight.position] += Units(weight.value);
      }
    }
  }
  return finite;
}

bool AttentionChangeReference(const AttentionChangeArgs& args) {
  bool finite = true;
  std::vector<Weight> fresh, stored;
  for (size_t r = 0; r < args.fresh.rows; ++r) {
    for (uint32_t head = 0; head < args.fresh.heads; ++head) {
      if (!WeightsOf(args.fresh, args.fresh.segments, r, head, &fresh) ||
          !WeightsOf(args.fresh, args.stored, r, head, &stored)) {
        finite = false;
        continue;
      }
      for (const Weight& weight : stored) {
        if (!weight.shared) continue;
        args.change[weight.position] += Units(std::abs(fresh[weight.position].value - weight.value));
      }
    }
  }
  return finite;
}

}  // namespace epic::internal
