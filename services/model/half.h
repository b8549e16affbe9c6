// Conversions between f32 and the two 16-bit float formats of weight files: IEEE half and bfloat16. Exact one
// way, round to nearest even the other. Pure functions.
#ifndef EPIC_SERVICES_MODEL_HALF_H_
#define EPIC_SERVICES_MODEL_HALF_H_

#include <bit>
#include <cstdint>

namespace epic {

inline float F32FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// NaN stays NaN (quiet).
inline uint16_t Bf16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Denormals, infinities and NaN included. No step makes an f32 denormal, so the result is the same where the
// processor flushes them.
inline float F32FromF16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half & 0x7C00u;
  const uint32_t mantissa = half & 0x3FFu;
  const uint32_t normal = (static_cast<uint32_t>(half & 0x7FFFu) << 13) + (112u << 23);
  const uint32_t denormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1.0p-24f);
  const uint32_t special = 0x7F800000u | (mantissa << 13);
  const uint32_t bits = exponent == 0 ? denormal : exponent == 0x7C00u ? special : normal;
  return std::bit_cast<float>(bits | sign);
}

// Values past the range become infinities; NaN stays NaN (quiet).
inline uint16_t F16FromF32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65536 and more
  if (magnitude < 0x38800000u) {
    // Denormal in half: adding 0.5 puts the value's last kept bit at the float's last bit, rounded to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_HALF_H_
