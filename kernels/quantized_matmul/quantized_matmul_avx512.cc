// AVX-512 with VNNI: one instruction multiplies and sums four levels of sixteen outputs. Functions carry
// their target, so the file is compiled for the baseline like every other one.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/quantized_matmul/quantized_matmul_internal.h"

#define EPIC_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

namespace epic::internal {
namespace {

EPIC_AVX512 inline void RoundGroup(__m512 low, __m512 high, size_t g, const RoundedRow& out) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  const __m512i magnitude = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), mask),
                                             _mm512_and_si512(_mm512_castps_si512(high), mask));
  const auto bits = static_cast<uint32_t>(_mm512_reduce_max_epi32(magnitude));
  float highest;
  std::memcpy(&highest, &bits, sizeof(highest));
  auto* levels = reinterpret_cast<__m128i*>(out.levels + g * kQuantizedGroup);
  if (bits >= 0x7f800000u || highest < kSmallestMagnitude) {
    _mm_storeu_si128(levels, _mm_setzero_si128());
    _mm_storeu_si128(levels + 1, _mm_setzero_si128());
    out.scales[g] = bits >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    out.sums[g] = 0;
    return;
  }
  const __m512 factor = _mm512_set1_ps(127.0f / highest);
  const __m512i low_levels = _mm512_cvtps_epi32(_mm512_mul_ps(low, factor));
  const __m512i high_levels = _mm512_cvtps_epi32(_mm512_mul_ps(high, factor));
  _mm_storeu_si128(levels, _mm512_cvtepi32_epi8(low_levels));
  _mm_storeu_si128(levels + 1, _mm512_cvtepi32_epi8(high_levels));
  out.scales[g] = highest / 127.0f;
  out.sums[g] = static_cast<float>(_mm512_reduce_add_epi32(_mm512_add_epi32(low_levels, high_levels)));
}

EPIC_AVX512 inline __m512i Quad(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return _mm512_set1_epi32(four);
}

EPIC_AVX512 inline __m512 Halves(const uint8_t* at) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}

// The eight quads of a group, each once for all rows.
template <uint32_t kBits>
EPIC_AVX512 inline void LoadQuads(const uint8_t* levels, __m512i* quads) {
  const auto* from = reinterpret_cast<const __m512i*>(levels);
  if constexpr (kBits == 8) {
    for (int j = 0; j < 8; ++j) quads[j] = _mm512_load_si512(from + j);
  } else {
    const __m512i low_mask = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; ++j) {
      const __m512i both = _mm512_load_si512(from + j);
      quads[j] = _mm512_and_si512(both, low_mask);
      quads[j + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_mask);
    }
  }
}

template <uint32_t kBits, size_t kRows>
EPIC_AVX512 void MultiplyRows(const PanelProduct& product, size_t first) {
  constexpr size_t kAhead = 2048;  // bytes; the next pages are not seen by the hardware's prefetcher
  __m512 sums[kRows];
  for (size_t r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_ps();
  for (size_t g = 0; g < product.groups; ++g) {
    const uint8_t* group = product.panel + g * GroupBytes(kBits);
    for (size_t line = 0; line < GroupBytes(kBits) && first == 0; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(group) + kAhead + line, _MM_HINT_T0);
    }
    __m512i quads[8];
    LoadQuads<kBits>(group + kGroupHead, quads);
    const __m512 scale = Halves(group);
    const __m512 minimum = Halves(group + kGroupHead / 2);
    for (size_t r = 0; r < kRows; ++r) {
      const size_t at = (first + r) * product.groups + g;
      const int8_t* x = product.levels + at * kQuantizedGroup;
      // Two chains, so that a row alone does not wait for each step.
      __m512i even = _mm512_setzero_si512();
      __m512i odd = _mm512_setzero_si512();
      for (int j = 0; j < 8; j += 2) {
        even = _mm512_dpbusd_epi32(even, quads[j], Quad(x + 4 * j));
        odd = _mm512_dpbusd_epi32(odd, quads[j + 1], Quad(x + 4 * j + 4));
      }
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
      const __m512 inner =
          _mm512_fmadd_ps(scale, dot, _mm512_mul_ps(minimum, _mm512_set1_ps(product.x_sums[at])));
      sums[r] = _mm512_fmadd_ps(inner, _mm512_set1_ps(product.scales[at]), sums[r]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) _mm512_storeu_ps(product.out + (first + r) * kPanelOutputs, sums[r]);
}

template <uint32_t kBits>
EPIC_AVX512 void Multiply(const PanelProduct& product) {
  size_t r = 0;
  for (; r + 8 <= product.rows; r += 8) MultiplyRows<kBits, 8>(product, r);
  for (; r + 4 <= product.rows; r += 4) MultiplyRows<kBits, 4>(product, r);
  for (; r + 2 <= product.rows; r += 2) MultiplyRows<kBits, 2>(product, r);
  for (; r < product.rows; ++r) MultiplyRows<kBits, 1>(product, r);
}

}  // namespace

EPIC_AVX512 void RoundRowAvx512(const float* x, size_t count, const RoundedRow& out) {
  size_t g = 0;
  for (; (g + 1) * kQuantizedGroup <= count; ++g) {
    const float* from = x + g * kQuantizedGroup;
    RoundGroup(_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16), g, out);
  }
  if (g * kQuantizedGroup < count) {
    float last[kQuantizedGroup] = {};
    std::copy(x + g * kQuantizedGroup, x + count, last);
    RoundGroup(_mm512_loadu_ps(last), _mm512_loadu_ps(last + 16), g, out);
  }
}

EPIC_AVX512 void MultiplyPanelAvx512Vnni(const PanelProduct& product) {
  if (product.bits == 4) return Multiply<4>(product);
  Multiply<8>(product);
}

}  // namespace epic::internal

#undef EPIC_AVX512
