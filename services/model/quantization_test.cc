// Storage formats against the gguf package's values, blocks worked out by hand, and the encoders of the
// tests.
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/half.h"
#include "services/model/model.h"
#include "services/model/quantization.h"
#include "services/model/testing/quantize.h"

namespace epic {
namespace {

using epic::testing::EncodeRow;
using epic::testing::ReadFileOrDie;

constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBf16,
                                    TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                    TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ4_K,
                                    TensorType::kQ5_K, TensorType::kQ6_K};

std::vector<float> DecodeRow(TensorType type, uint64_t cols, const std::string& bytes) {
  std::vector<float> values(cols);
  DequantizeRow(Tensor{"t", type, 1, cols, AsBytes(bytes)}, 0, values);
  return values;
}

TEST(QuantizationTest, EqualsTheReferenceOnRandomBlocksOfEveryType) {
  // Made by golden/make_dequantize_golden.py with the gguf package.
  const std::string golden =
      ReadFileOrDie(epic::testing::SourceDir() + "/services/model/golden/dequantize.bin");
  size_t position = 0;
  std::vector<TensorType> seen;
  while (position < golden.size()) {
    const ByteSpan span = AsBytes(golden);
    const auto type = SupportedTensorType(LoadLittle<uint32_t>(span, position));
    const uint32_t count = LoadLittle<uint32_t>(span, position + 4);
    const uint32_t size = LoadLittle<uint32_t>(span, position + 8);
    ASSERT_TRUE(type.has_value());
    const std::vector<float> values = DecodeRow(*type, count, golden.substr(position + 12, size));
    position += 12 + size;
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(values[i], LoadLittle<float>(span, position + 4 * i)) << NameOf(*type) << " value " << i;
    }
    position += 4 * count;
    seen.push_back(*type);
  }
  EXPECT_EQ(seen, std::vector<TensorType>(std::begin(kAllTypes), std::end(kAllTypes)));
}

TEST(QuantizationTest, LevelsStandForTheValuesOfTheSameBlocks) {
  const std::string golden =
      ReadFileOrDie(epic::testing::SourceDir() + "/services/model/golden/dequantize.bin");
  const ByteSpan span = AsBytes(golden);
  size_t position = 0;
  size_t types = 0;
  while (position < golden.size()) {
    const TensorType type = *SupportedTensorType(LoadLittle<uint32_t>(span, position));
    const uint32_t count = LoadLittle<uint32_t>(span, position + 4);
    const uint32_t size = LoadLittle<uint32_t>(span, position + 8);
    const std::string bytes = golden.substr(position + 12, size);
    position += 12 + size + 4 * count;
    if (LevelBitsOf(type) == 0) continue;
    ++types;
    const std::vector<float> values = DecodeRow(type, count, bytes);
    std::vector<LevelGroup> groups(count / 32);
    ReadLevels(Tensor{"t", type, 1, count, AsBytes(bytes)}, 0, groups);
    for (uint32_t i = 0; i < count; ++i) {
      const LevelGroup& group = groups[i / 32];
      const uint8_t level = group.levels[i % 32];
      ASSERT_LT(level, 1u << LevelBitsOf(type));
      const double scaled = double{group.scale} * level;
      // One rounding of the product and one of the sum.
      ASSERT_NEAR(scaled + group.minimum, values[i],
                  (std::fabs(scaled) + std::fabs(group.minimum)) * 0x1.0p-23)
          << NameOf(type) << " value " << i;
    }
  }
  EXPECT_EQ(types, 7u);
}

TEST(QuantizationTest, DecodesBlocksWorkedOutByHand) {
  // d = 1.0 (0x3C00), then nibbles 0x1F: low 15, high 1.
  const std::string q4_0 = std::string("\x00\x3C", 2) + std::string(16, '\x1F');
  std::vector<float> values = DecodeRow(TensorType::kQ4_0, 32, q4_0);
  EXPECT_EQ(values[0], 7.0f);
  EXPECT_EQ(values[15], 7.0f);
  EXPECT_EQ(values[16], -7.0f);
  // d = 2.0, m = -1.0.
  const std::string q4_1 = std::string("\x00\x40\x00\xBC", 4) + std::string(16, '\x1F');
  values = DecodeRow(TensorType::kQ4_1, 32, q4_1);
  EXPECT_EQ(values[3], 29.0f);
  EXPECT_EQ(values[19], 1.0f);
  // Fifth bits: bit 0 for value 0, bit 17 for value 17.
  const std::string q5_0 = std::string("\x00\x3C\x01\x00\x02\x00", 6) + std::string(16, '\x1F');
  values = DecodeRow(TensorType::kQ5_0, 32, q5_0);
  EXPECT_EQ(values[0], 15.0f);
  EXPECT_EQ(values[1], -1.0f);
  EXPECT_EQ(values[16], -15.0f);
  EXPECT_EQ(values[17], 1.0f);
  const std::string q8_0 = std::string("\x00\x38\x80\x7F", 4) + std::string(30, '\x02');
  values = DecodeRow(TensorType::kQ8_0, 32, q8_0);
  EXPECT_EQ(values[0], -64.0f);
  EXPECT_EQ(values[1], 63.5f);
  EXPECT_EQ(values[31], 1.0f);
}

TEST(QuantizationTest, KeepsRowsApart) {
  for (TensorType type : kAllTypes) {
    if (epic::testing::IsKQuant(type)) continue;
    const std::vector<float> low(64, 1.0f), high(64, -2.0f);
    const std::string bytes = EncodeRow(type, low) + EncodeRow(type, high);
    const Tensor tensor{"t", type, 2, 64, AsBytes(bytes)};
    std::vector<float> row(64);
    DequantizeRow(tensor, 1, row);
    EXPECT_NEAR(row[63], -2.0f, 0.02f) << NameOf(type);
    DequantizeRow(tensor, 0, row);
    EXPECT_NEAR(row[0], 1.0f, 0.02f) << NameOf(type);
  }
}

TEST(QuantizationTest, EncodersStayWithinHalfAStep) {
  const uint64_t seed = 7;
  Rng rng(seed);
  std::vector<float> row(256);
  for (float& value : row) value = static_cast<float>(rng.Gaussian());
  const std::pair<TensorType, double> bounds[] = {{TensorType::kF16, 0.002}, {TensorType::kBf16, 0.02},
                                                  {TensorType::kQ8_0, 0.02}, {TensorType::kQ5_0, 0.25},
                                                  {TensorType::kQ5_1, 0.15}, {TensorType::kQ4_0, 0.5},
                                                  {TensorType::kQ4_1, 0.3}};
  for (const auto& [type, bound] : bounds) {
    const std::vector<float> values = DecodeRow(type, row.size(), EncodeRow(type, row));
    for (size_t i = 0; i < row.size(); ++i)
      EXPECT_NEAR(values[i], row[i], bound) << NameOf(type) << " seed " << seed;
  }
}

TEST(QuantizationTest, HalvesSurviveTheWayThereAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = F32FromF16(half);
    const float brain = F32FromBf16(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(F32FromF16(F16FromF32(wide))));
    } else {
      ASSERT_EQ(F16FromF32(wide), half) << bits;
    }
    if (!std::isnan(brain)) {
      ASSERT_EQ(Bf16FromF32(brain), half) << bits;
    }
  }
  EXPECT_EQ(F16FromF32(65520.0f), 0x7C00);         // rounds up to infinity
  EXPECT_EQ(F16FromF32(65519.0f), 0x7BFF);         // the largest finite half
  EXPECT_EQ(F16FromF32(1.0f + 0x1p-11f), 0x3C00);  // a tie goes to even
  EXPECT_EQ(F16FromF32(1.0f + 3 * 0x1p-11f), 0x3C02);
  EXPECT_EQ(F16FromF32(0x1p-25f), 0x0000);  // a tie below the smallest denormal
  EXPECT_EQ(Bf16FromF32(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(Bf16FromF32(1.0f + 3 * 0x1p-8f), 0x3F82);
}

TEST(QuantizationTest, NamesWhatItDoesNotRead) {
  EXPECT_FALSE(SupportedTensorType(20).has_value());
  EXPECT_EQ(NameOfTypeId(20), "IQ4_NL");
  EXPECT_EQ(NameOfTypeId(39), "MXFP4");
  EXPECT_EQ(NameOfTypeId(4), "type 4");
  EXPECT_EQ(NameOfTypeId(4000000000u), "type 4000000000");
  for (TensorType type : kAllTypes) {
    EXPECT_EQ(SupportedTensorType(static_cast<uint32_t>(type)), type);
    EXPECT_EQ(NameOfTypeId(static_cast<uint32_t>(type)), NameOf(type));
  }
}

}  // namespace
}  // namespace epic
