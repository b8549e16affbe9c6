// Element types of kernels and the rounding between them, one value at a time.
//
// Pure, any thread. Everything that rounds to bf16 gives the bits of ToBf16; arrays are converted by
// kernels/convert. Storage formats of weight files are not here but in services/model.
#ifndef EPIC_KERNELS_API_DTYPE_H_
#define EPIC_KERNELS_API_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace epic {

enum class DType : uint8_t { kF32 = 0, kBf16 = 1 };
constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// The upper half of an f32.
using Bf16 = uint16_t;

inline float ToF32(Bf16 value) { return std::bit_cast<float>(uint32_t{value} << 16); }

// Round to nearest, ties to even; NaN stays NaN.
inline Bf16 ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<Bf16>((bits >> 16) | 0x40u);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace epic

#endif  // EPIC_KERNELS_API_DTYPE_H_
