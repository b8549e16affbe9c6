// AVX2. Functions carry their target, so the file is compiled for the baseline like every other one.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/quantized_matmul/quantized_matmul_internal.h"

#define EPIC_AVX2 __attribute__((target("avx2,fma,f16c")))

namespace epic::internal {
namespace {

EPIC_AVX2 inline uint32_t HighestBits(const __m256* x) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i highest = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    highest = _mm256_max_epi32(highest, _mm256_and_si256(_mm256_castps_si256(x[i]), mask));
  }
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(highest), _mm256_extracti128_si256(highest, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(half));
}

EPIC_AVX2 inline int32_t SumOfLanes(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}

EPIC_AVX2 inline void RoundGroup(const float* x, size_t g, const RoundedRow& out) {
  const __m256 v[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
                       _mm256_loadu_ps(x + 24)};
  const uint32_t bits = HighestBits(v);
  float highest;
  std::memcpy(&highest, &bits, sizeof(highest));
  auto* levels = reinterpret_cast<__m256i*>(out.levels + g * kQuantizedGroup);
  if (bits >= 0x7f800000u || highest < kSmallestMagnitude) {
    _mm256_storeu_si256(levels, _mm256_setzero_si256());
    out.scales[g] = bits >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    out.sums[g] = 0;
    return;
  }
  const __m256 factor = _mm256_set1_ps(127.0f / highest);
  __m256i level[4];
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    level[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], factor));
    sum = _mm256_add_epi32(sum, level[i]);
  }
  // Packing works within halves: the words come out as 0, 4, 1, 5, 2, 6, 3, 7.
  const __m256i words =
      _mm256_packs_epi16(_mm256_packs_epi32(level[0], level[1]), _mm256_packs_epi32(level[2], level[3]));
  _mm256_storeu_si256(levels, _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
  out.scales[g] = highest / 127.0f;
  out.sums[g] = static_cast<float>(SumOfLanes(sum));
}

EPIC_AVX2 inline __m256i Quad(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof(four));
  return _mm256_set1_epi32(four);
}

// Sums of products of 32 levels of 4 bits: 16-bit sums hold 8 * 2 * 15 * 127.
EPIC_AVX2 inline __m256i Dot4(const __m256i* levels, const int8_t* x) {
  const __m256i low_mask = _mm256_set1_epi8(15);
  __m256i sum = _mm256_setzero_si256();
  for (int j = 0; j < 4; ++j) {
    const __m256i both = _mm256_load_si256(levels + 2 * j);
    const __m256i low = _mm256_and_si256(both, low_mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_mask);
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(low, Quad(x + 4 * j)));
    sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(high, Quad(x + 16 + 4 * j)));
  }
  return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

// Levels of 8 bits would overflow sums of 16: even and odd bytes are widened.
EPIC_AVX2 inline __m256i Dot8(const __m256i* levels, const int8_t* x) {
  const __m256i even_mask = _mm256_set1_epi16(0xff);
  __m256i sum = _mm256_setzero_si256();
  for (int j = 0; j < 8; ++j) {
    const __m256i w = _mm256_load_si256(levels + 2 * j);
    const __m256i quad = Quad(x + 4 * j);
    const __m256i x_even = _mm256_srai_epi16(_mm256_slli_epi16(quad, 8), 8);
    const __m256i x_odd = _mm256_srai_epi16(quad, 8);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_and_si256(w, even_mask), x_even));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_srli_epi16(w, 8), x_odd));
  }
  return sum;
}

EPIC_AVX2 inline __m256 Halves(const uint8_t* at) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}

template <uint32_t kBits>
EPIC_AVX2 void MultiplyHalf(const PanelProduct& product, size_t half, size_t r) {
  __m256 sum = _mm256_setzero_ps();
  for (size_t g = 0; g < product.groups; ++g) {
    const uint8_t* group = product.panel + g * GroupBytes(kBits);
    const auto* levels = reinterpret_cast<const __m256i*>(group + kGroupHead) + half;
    const size_t at = r * product.groups + g;
    const int8_t* x = product.levels + at * kQuantizedGroup;
    const __m256i dot = kBits == 4 ? Dot4(levels, x) : Dot8(levels, x);
    const __m256 scale = Halves(group + half * 16);
    const __m256 minimum = Halves(group + kGroupHead / 2 + half * 16);
    const __m256 inner = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot),
                                         _mm256_mul_ps(minimum, _mm256_set1_ps(product.x_sums[at])));
    sum = _mm256_fmadd_ps(inner, _mm256_set1_ps(product.scales[at]), sum);
  }
  _mm256_storeu_ps(product.out + r * kPanelOutputs + half * 8, sum);
}

}  // namespace

EPIC_AVX2 void RoundRowAvx2(const float* x, size_t count, const RoundedRow& out) {
  size_t g = 0;
  for (; (g + 1) * kQuantizedGroup <= count; ++g) RoundGroup(x + g * kQuantizedGroup, g, out);
  if (g * kQuantizedGroup < count) {
    float last[kQuantizedGroup] = {};
    std::copy(x + g * kQuantizedGroup, x + count, last);
    RoundGroup(last, g, out);
  }
}

EPIC_AVX2 void MultiplyPanelAvx2(const PanelProduct& product) {
  for (size_t r = 0; r < product.rows; ++r) {
    for (size_t half = 0; half < 2; ++half) {
      if (product.bits == 4) {
        MultiplyHalf<4>(product, half, r);
      } else {
        MultiplyHalf<8>(product, half, r);
      }
    }
  }
}

}  // namespace epic::internal

#undef EPIC_AVX2
