// Plain C++, for CPUs without AVX2 and as the second opinion of tests.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/quantized_matmul/quantized_matmul_internal.h"

namespace epic::internal {

float F32FromHalf(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // Moved to the place of an f32, the exponent is short by 112.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

uint16_t HalfFrom(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (!std::isfinite(value)) return 0x7e00;
  if (magnitude < 0x1p-14f) {
    // Subnormal: a count of 2^-24, rounded by the conversion.
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f)));
  }
  const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + ((bits >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
}

void RoundRowPortable(const float* x, size_t count, const RoundedRow& out) {
  for (size_t begin = 0, g = 0; begin < count; begin += kQuantizedGroup, ++g) {
    const size_t size = std::min(kQuantizedGroup, count - begin);
    int8_t* levels = out.levels + begin;
    std::fill_n(levels, kQuantizedGroup, int8_t{0});
    uint32_t highest_bits = 0;
    for (size_t i = 0; i < size; ++i) {
      highest_bits = std::max(highest_bits, std::bit_cast<uint32_t>(x[begin + i]) & 0x7fffffffu);
    }
    const float highest = std::bit_cast<float>(highest_bits);
    out.sums[g] = 0;
    if (highest_bits >= 0x7f800000u) {
      out.scales[g] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    if (highest < kSmallestMagnitude) {
      out.scales[g] = 0;
      continue;
    }
    const float factor = 127.0f / highest;
    int32_t sum = 0;
    for (size_t i = 0; i < size; ++i) {
      const auto level = static_cast<int32_t>(std::nearbyint(x[begin + i] * factor));
      levels[i] = static_cast<int8_t>(level);
      sum += level;
    }
    out.scales[g] = highest / 127.0f;
    out.sums[g] = static_cast<float>(sum);
  }
}

namespace {

// Level k of output o of a group's levels.
uint8_t LevelAt(const uint8_t* levels, uint32_t bits, size_t o, size_t k) {
  const size_t quad = k / 4;
  if (bits == 8) return levels[quad * 64 + o * 4 + k % 4];
  const uint8_t pair = levels[quad % 4 * 64 + o * 4 + k % 4];
  return quad < 4 ? pair & 15 : pair >> 4;
}

}  // namespace

void MultiplyPanelPortable(const PanelProduct& product) {
  for (size_t r = 0; r < product.rows; ++r) {
    float* out = product.out + r * kPanelOutputs;
    std::fill_n(out, kPanelOutputs, 0.0f);
    for (size_t g = 0; g < product.groups; ++g) {
      const uint8_t* group = product.panel + g * GroupBytes(product.bits);
      const int8_t* x = product.levels + (r * product.groups + g) * kQuantizedGroup;
      const float x_scale = product.scales[r * product.groups + g];
      const float x_sum = product.x_sums[r * product.groups + g];
      for (size_t o = 0; o < kPanelOutputs; ++o) {
        int32_t dot = 0;
        for (size_t k = 0; k < kQuantizedGroup; ++k) {
          dot += int32_t{LevelAt(group + kGroupHead, product.bits, o, k)} * x[k];
        }
        uint16_t head[2];
        std::memcpy(&head[0], group + 2 * o, 2);
        std::memcpy(&head[1], group + 2 * (kPanelOutputs + o), 2);
        const float inner =
            std::fma(F32FromHalf(head[0]), static_cast<float>(dot), F32FromHalf(head[1]) * x_sum);
        out[o] = std::fma(inner, x_scale, out[o]);
      }
    }
  }
}

}  // namespace epic::internal
