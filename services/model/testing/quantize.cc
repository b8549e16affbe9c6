#include "services/model/testing/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/check.h"
#include "services/model/half.h"

namespace epic::testing {
namespace {

constexpr int kBlock = 32;
using Block = std::span<const float, kBlock>;

// round((value - origin) / scale) within [0, max].
uint8_t Level(float value, float origin, float scale, int max) {
  if (scale == 0.0f) return 0;
  return static_cast<uint8_t>(std::clamp(static_cast<int>(std::lround((value - origin) / scale)), 0, max));
}

// Appends the nibbles of 32 levels (value j in the low, j + 16 in the high half of byte j), before them the
// fifth bits when the levels have five.
void AppendLevels(const std::array<uint8_t, kBlock>& levels, bool fifth, std::string* out) {
  if (fifth) {
    uint32_t high = 0;
    for (int j = 0; j < kBlock; ++j) high |= static_cast<uint32_t>(levels[j] >> 4) << j;
    AppendLittle<uint32_t>(out, high);
  }
  for (int j = 0; j < kBlock / 2; ++j) {
    AppendLittle<uint8_t>(out, static_cast<uint8_t>((levels[j] & 15) | ((levels[j + 16] & 15) << 4)));
  }
}

// Q4_0 and Q5_0: levels around the middle `half` of 2 * half levels.
void AppendSymmetric(Block block, int half, std::string* out) {
  float largest = 0.0f;
  for (float value : block) {
    if (std::abs(value) > std::abs(largest)) largest = value;
  }
  const uint16_t d = F16FromF32(largest / static_cast<float>(-half));
  AppendLittle<uint16_t>(out, d);
  const float scale = F32FromF16(d);
  std::array<uint8_t, kBlock> levels;
  for (int j = 0; j < kBlock; ++j) {
    levels[j] = Level(block[j], static_cast<float>(-half) * scale, scale, 2 * half - 1);
  }
  AppendLevels(levels, half == 16, out);
}

// Q4_1 and Q5_1: max + 1 levels from the smallest value up.
void AppendAsymmetric(Block block, int max, std::string* out) {
  const auto [low, high] = std::minmax_element(block.begin(), block.end());
  const uint16_t d = F16FromF32((*high - *low) / static_cast<float>(max));
  const uint16_t m = F16FromF32(*low);
  AppendLittle<uint16_t>(out, d);
  AppendLittle<uint16_t>(out, m);
  std::array<uint8_t, kBlock> levels;
  for (int j = 0; j < kBlock; ++j) levels[j] = Level(block[j], F32FromF16(m), F32FromF16(d), max);
  AppendLevels(levels, max == 31, out);
}

void AppendQ8_0(Block block, std::string* out) {
  float largest = 0.0f;
  for (float value : block) largest = std::max(largest, std::abs(value));
  const uint16_t d = F16FromF32(largest / 127.0f);
  AppendLittle<uint16_t>(out, d);
  const float scale = F32FromF16(d);
  for (float value : block) {
    const long level = scale == 0.0f ? 0 : std::clamp(std::lround(value / scale), -127l, 127l);
    AppendLittle<int8_t>(out, static_cast<int8_t>(level));
  }
}

void AppendBlock(TensorType type, Block block, std::string* out) {
  switch (type) {
    case TensorType::kQ4_0:
      return AppendSymmetric(block, 8, out);
    case TensorType::kQ5_0:
      return AppendSymmetric(block, 16, out);
    case TensorType::kQ4_1:
      return AppendAsymmetric(block, 15, out);
    case TensorType::kQ5_1:
      return AppendAsymmetric(block, 31, out);
    case TensorType::kQ8_0:
      return AppendQ8_0(block, out);
    default:
      EPIC_CHECK(false && "no encoder for this type");
  }
}

void AppendRandomBytes(size_t count, Rng* rng, std::string* out) {
  for (size_t i = 0; i < count; ++i) out->push_back(static_cast<char>(rng->Below(256)));
}

}  // namespace

bool IsKQuant(TensorType type) { return BlockShapeOf(type).values == 256; }

std::string EncodeRow(TensorType type, std::span<const float> row) {
  std::string out;
  switch (type) {
    case TensorType::kF32:
      for (float value : row) AppendLittle<float>(&out, value);
      return out;
    case TensorType::kF16:
      for (float value : row) AppendLittle<uint16_t>(&out, F16FromF32(value));
      return out;
    case TensorType::kBf16:
      for (float value : row) AppendLittle<uint16_t>(&out, Bf16FromF32(value));
      return out;
    default:
      break;
  }
  EPIC_CHECK(row.size() % kBlock == 0);
  for (size_t i = 0; i < row.size(); i += kBlock) AppendBlock(type, row.subspan(i).first<kBlock>(), &out);
  return out;
}

std::string RandomKQuantRow(TensorType type, uint64_t cols, double sigma, Rng* rng) {
  EPIC_CHECK(IsKQuant(type) && cols % 256 == 0);
  std::string out;
  for (uint64_t i = 0; i < cols; i += 256) {
    if (type == TensorType::kQ6_K) {
      // Levels spread over [-32, 31] and scales over [-64, 63]: standard deviations of about 18 and 37.
      AppendRandomBytes(192, rng, &out);
      for (int j = 0; j < 16; ++j) {
        AppendLittle<int8_t>(&out, static_cast<int8_t>(static_cast<int>(rng->Below(128)) - 64));
      }
      AppendLittle<uint16_t>(&out, F16FromF32(static_cast<float>(sigma / (18.0 * 37.0))));
      continue;
    }
    // d * scale * level - dmin * min, with dmin such that the two have the same mean.
    const double levels = type == TensorType::kQ4_K ? 16.0 : 32.0;
    const double d = sigma / (31.0 * levels * 0.45);
    AppendLittle<uint16_t>(&out, F16FromF32(static_cast<float>(d)));
    AppendLittle<uint16_t>(&out, F16FromF32(static_cast<float>(d * (levels - 1.0) / 2.0)));
    AppendRandomBytes(BlockShapeOf(type).bytes - 4, rng, &out);
  }
  return out;
}

}  // namespace epic::testing
