#include "services/model/quantization.h"

#include <array>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "services/model/half.h"

namespace epic {
namespace {

struct TypeInfo {
  TensorType type;
  std::string_view name;
  BlockShape shape;
};

constexpr std::array kTypes = {
    TypeInfo{TensorType::kF32, "F32", {1, 4}},       TypeInfo{TensorType::kF16, "F16", {1, 2}},
    TypeInfo{TensorType::kBf16, "BF16", {1, 2}},     TypeInfo{TensorType::kQ4_0, "Q4_0", {32, 18}},
    TypeInfo{TensorType::kQ4_1, "Q4_1", {32, 20}},   TypeInfo{TensorType::kQ5_0, "Q5_0", {32, 22}},
    TypeInfo{TensorType::kQ5_1, "Q5_1", {32, 24}},   TypeInfo{TensorType::kQ8_0, "Q8_0", {32, 34}},
    TypeInfo{TensorType::kQ4_K, "Q4_K", {256, 144}}, TypeInfo{TensorType::kQ5_K, "Q5_K", {256, 176}},
    TypeInfo{TensorType::kQ6_K, "Q6_K", {256, 210}},
};

// By id, for messages. Empty: the id was withdrawn or never given.
constexpr std::array<std::string_view, 42> kAllNames = {
    "F32",   "F16",    "Q4_0",  "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  "",       "",
    "",      "TQ1_0",  "TQ2_0", "",     "",     "",        "MXFP4",  "NVFP4",   "Q1_0"};

const TypeInfo& InfoOf(TensorType type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  EPIC_CHECK(false && "a TensorType outside the enum");
  return kTypes[0];
}

uint16_t LoadU16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

uint32_t LoadU32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

float LoadHalf(const uint8_t* p) { return F32FromF16(LoadU16(p)); }

// Block layouts, in bytes:
//   Q4_0 {f16 d; u8 q[16]}                 y[j] = (low nibble of q[j] - 8) d, y[j+16] from the high nibble
//   Q4_1 {f16 d, m; u8 q[16]}              y = nibble d + m
//   Q5_0 {f16 d; u32 high; u8 q[16]}       bit j of `high` is the fifth bit of y[j], bit j+16 that of y[j+16]
//   Q5_1 {f16 d, m; u32 high; u8 q[16]}
//   Q8_0 {f16 d; i8 q[32]}
void DequantizeQ4_0(const uint8_t* block, float* y) {
  const float d = LoadHalf(block);
  const uint8_t* q = block + 2;
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((q[j] & 15) - 8) * d;
    y[j + 16] = static_cast<float>((q[j] >> 4) - 8) * d;
  }
}

void DequantizeQ4_1(const uint8_t* block, float* y) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  const uint8_t* q = block + 4;
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(q[j] & 15) * d + m;
    y[j + 16] = static_cast<float>(q[j] >> 4) * d + m;
  }
}

void DequantizeQ5_0(const uint8_t* block, float* y) {
  const float d = LoadHalf(block);
  const uint32_t high = LoadU32(block + 2);
  const uint8_t* q = block + 6;
  for (int j = 0; j < 16; ++j) {
    const int low_bit = static_cast<int>((high >> j) & 1u) << 4;
    const int high_bit = static_cast<int>((high >> (j + 16)) & 1u) << 4;
    y[j] = static_cast<float>(((q[j] & 15) | low_bit) - 16) * d;
    y[j + 16] = static_cast<float>(((q[j] >> 4) | high_bit) - 16) * d;
  }
}

void DequantizeQ5_1(const uint8_t* block, float* y) {
  const float d = LoadHalf(block);
  const float m = LoadHalf(block + 2);
  const uint32_t high = LoadU32(block + 4);
  const uint8_t* q = block + 8;
  for (int j = 0; j < 16; ++j) {
    const int low_bit = static_cast<int>((high >> j) & 1u) << 4;
    const int high_bit = static_cast<int>((high >> (j + 16)) & 1u) << 4;
    y[j] = static_cast<float>((q[j] & 15) | low_bit) * d + m;
    y[j + 16] = static_cast<float>((q[j] >> 4) | high_bit) * d + m;
  }
}

void DequantizeQ8_0(const uint8_t* block, float* y) {
  const float d = LoadHalf(block);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<int8_t>(block[2 + j])) * d;
}

struct ScaleAndMin {
  int scale;
  int min;
};

// The j-th pair of 6-bit scale and minimum in the 12 packed bytes of Q4_K and Q5_K.
ScaleAndMin UnpackScale(const uint8_t* s, int j) {
  if (j < 4) return {s[j] & 63, s[j + 4] & 63};
  return {(s[j + 4] & 15) | ((s[j - 4] >> 6) << 4), (s[j + 4] >> 4) | ((s[j] >> 6) << 4)};
}

// {f16 d, dmin; u8 scales[12]; u8 q[128]}: 64 values for each 32 bytes of q, low nibbles first.
void DequantizeQ4_K(const uint8_t* block, float* y) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const uint8_t* scales = block + 4;
  const uint8_t* q = block + 16;
  for (int i = 0; i < 4; ++i, q += 32, y += 64) {
    const ScaleAndMin low = UnpackScale(scales, 2 * i);
    const ScaleAndMin high = UnpackScale(scales, 2 * i + 1);
    const float d_low = d * static_cast<float>(low.scale), m_low = dmin * static_cast<float>(low.min);
    const float d_high = d * static_cast<float>(high.scale), m_high = dmin * static_cast<float>(high.min);
    for (int l = 0; l < 32; ++l) {
      y[l] = d_low * static_cast<float>(q[l] & 15) - m_low;
      y[l + 32] = d_high * static_cast<float>(q[l] >> 4) - m_high;
    }
  }
}

// As Q4_K with the fifth bits in u8 high[32] before q: bit 2i of high[l] for low nibbles, 2i+1 for high ones.
void DequantizeQ5_K(const uint8_t* block, float* y) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  const uint8_t* scales = block + 4;
  const uint8_t* fifth = block + 16;
  const uint8_t* q = block + 48;
  for (int i = 0; i < 4; ++i, q += 32, y += 64) {
    const ScaleAndMin low = UnpackScale(scales, 2 * i);
    const ScaleAndMin high = UnpackScale(scales, 2 * i + 1);
    const float d_low = d * static_cast<float>(low.scale), m_low = dmin * static_cast<float>(low.min);
    const float d_high = d * static_cast<float>(high.scale), m_high = dmin * static_cast<float>(high.min);
    for (int l = 0; l < 32; ++l) {
      const int low_bit = ((fifth[l] >> (2 * i)) & 1) << 4;
      const int high_bit = ((fifth[l] >> (2 * i + 1)) & 1) << 4;
      y[l] = d_low * static_cast<float>((q[l] & 15) | low_bit) - m_low;
      y[l + 32] = d_high * static_cast<float>((q[l] >> 4) | high_bit) - m_high;
    }
  }
}

// The same blocks as levels: each fills the groups of one block.
void LevelsOfNibbles(const uint8_t* q, LevelGroup* group) {
  for (int j = 0; j < 16; ++j) {
    group->levels[j] = q[j] & 15;
    group->levels[j + 16] = q[j] >> 4;
  }
}

void AddFifthBits(uint32_t high, LevelGroup* group) {
  for (int j = 0; j < 32; ++j) group->levels[j] |= static_cast<uint8_t>(((high >> j) & 1u) << 4);
}

void LevelsQ4_0(const uint8_t* block, LevelGroup* group) {
  group->scale = LoadHalf(block);
  group->minimum = -8 * group->scale;
  LevelsOfNibbles(block + 2, group);
}

void LevelsQ4_1(const uint8_t* block, LevelGroup* group) {
  group->scale = LoadHalf(block);
  group->minimum = LoadHalf(block + 2);
  LevelsOfNibbles(block + 4, group);
}

void LevelsQ5_0(const uint8_t* block, LevelGroup* group) {
  group->scale = LoadHalf(block);
  group->minimum = -16 * group->scale;
  LevelsOfNibbles(block + 6, group);
  AddFifthBits(LoadU32(block + 2), group);
}

void LevelsQ5_1(const uint8_t* block, LevelGroup* group) {
  group->scale = LoadHalf(block);
  group->minimum = LoadHalf(block + 2);
  LevelsOfNibbles(block + 8, group);
  AddFifthBits(LoadU32(block + 4), group);
}

void LevelsQ8_0(const uint8_t* block, LevelGroup* group) {
  group->scale = LoadHalf(block);
  group->minimum = -128 * group->scale;
  for (int j = 0; j < 32; ++j) group->levels[j] = block[2 + j] ^ 0x80u;
}

// Q4_K, and Q5_K where `fifth` is not null.
void LevelsOfK(const uint8_t* block, const uint8_t* fifth, const uint8_t* q, LevelGroup* groups) {
  const float d = LoadHalf(block);
  const float dmin = LoadHalf(block + 2);
  for (int i = 0; i < 8; ++i) {
    const ScaleAndMin pair = UnpackScale(block + 4, i);
    LevelGroup& group = groups[i];
    group.scale = d * static_cast<float>(pair.scale);
    group.minimum = -(dmin * static_cast<float>(pair.min));
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = q[i / 2 * 32 + l];
      group.levels[l] = i % 2 == 0 ? byte & 15 : byte >> 4;
      if (fifth != nullptr) group.levels[l] |= static_cast<uint8_t>(((fifth[l] >> i) & 1) << 4);
    }
  }
}

void LevelsQ4_K(const uint8_t* block, LevelGroup* groups) { LevelsOfK(block, nullptr, block + 16, groups); }
void LevelsQ5_K(const uint8_t* block, LevelGroup* groups) {
  LevelsOfK(block, block + 16, block + 48, groups);
}

template <typename Levels>
void LevelsOfBlocks(const uint8_t* row, std::span<LevelGroup> groups, BlockShape shape, Levels levels) {
  const size_t step = shape.values / 32;
  for (size_t g = 0; g < groups.size(); g += step, row += shape.bytes) levels(row, &groups[g]);
}

// {u8 low[128]; u8 high[64]; i8 scales[16]; f16 d}: per 128 values 64 low bytes, 32 high bytes, 8 scales.
void DequantizeQ6_K(const uint8_t* block, float* y) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const uint8_t* scales = block + 192;
  const float d = LoadHalf(block + 208);
  for (int half = 0; half < 2; ++half, y += 128, low += 64, high += 32, scales += 8) {
    for (int l = 0; l < 32; ++l) {
      const int is = l / 16;
      const int h = high[l];
      const int quants[4] = {
          ((low[l] & 15) | ((h & 3) << 4)) - 32, ((low[l + 32] & 15) | (((h >> 2) & 3) << 4)) - 32,
          ((low[l] >> 4) | (((h >> 4) & 3) << 4)) - 32, ((low[l + 32] >> 4) | ((h >> 6) << 4)) - 32};
      for (int k = 0; k < 4; ++k) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[is + 2 * k]));
        y[l + 32 * k] = scale * static_cast<float>(quants[k]);
      }
    }
  }
}

template <typename Convert>
void ConvertRow(const uint8_t* row, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = convert(LoadU16(row + 2 * i));
}

template <typename Dequantize>
void DequantizeBlocks(const uint8_t* row, std::span<float> out, BlockShape shape, Dequantize dequantize) {
  float* y = out.data();
  for (size_t i = 0; i < out.size(); i += shape.values, row += shape.bytes, y += shape.values) {
    dequantize(row, y);
  }
}

}  // namespace

BlockShape BlockShapeOf(TensorType type) { return InfoOf(type).shape; }

std::string_view NameOf(TensorType type) { return InfoOf(type).name; }

std::optional<TensorType> SupportedTensorType(uint32_t id) {
  for (const TypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) return info.type;
  }
  return std::nullopt;
}

std::string NameOfTypeId(uint32_t id) {
  if (id < kAllNames.size() && !kAllNames[id].empty()) return std::string(kAllNames[id]);
  return absl::StrCat("type ", id);
}

std::string SupportedTypeNames() {
  std::string names;
  for (const TypeInfo& info : kTypes) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", ToAbsl(info.name));
  }
  return names;
}

uint32_t LevelBitsOf(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ4_K:
      return 4;
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ5_K:
      return 5;
    case TensorType::kQ8_0:
      return 8;
    default:  // plain values; and Q6_K, whose scales are for 16 values
      return 0;
  }
}

void ReadLevels(const Tensor& tensor, uint64_t row, std::span<LevelGroup> groups) {
  EPIC_CHECK(row < tensor.rows && groups.size() * 32 == tensor.cols);
  const BlockShape shape = BlockShapeOf(tensor.type);
  const uint64_t row_bytes = tensor.cols / shape.values * shape.bytes;
  EPIC_CHECK(tensor.cols % shape.values == 0 && tensor.data.size() >= (row + 1) * row_bytes);
  const uint8_t* data = reinterpret_cast<const uint8_t*>(tensor.data.data()) + row * row_bytes;
  switch (tensor.type) {
    case TensorType::kQ4_0:
      return LevelsOfBlocks(data, groups, shape, LevelsQ4_0);
    case TensorType::kQ4_1:
      return LevelsOfBlocks(data, groups, shape, LevelsQ4_1);
    case TensorType::kQ5_0:
      return LevelsOfBlocks(data, groups, shape, LevelsQ5_0);
    case TensorType::kQ5_1:
      return LevelsOfBlocks(data, groups, shape, LevelsQ5_1);
    case TensorType::kQ8_0:
      return LevelsOfBlocks(data, groups, shape, LevelsQ8_0);
    case TensorType::kQ4_K:
      return LevelsOfBlocks(data, groups, shape, LevelsQ4_K);
    case TensorType::kQ5_K:
      return LevelsOfBlocks(data, groups, shape, LevelsQ5_K);
    default:
      EPIC_CHECK(false && "not a type of levels");
  }
}

void DequantizeRow(const Tensor& tensor, uint64_t row, std::span<float> out) {
  EPIC_CHECK(row < tensor.rows && out.size() == tensor.cols);
  const BlockShape shape = BlockShapeOf(tensor.type);
  const uint64_t row_bytes = tensor.cols / shape.values * shape.bytes;
  EPIC_CHECK(tensor.cols % shape.values == 0 && tensor.data.size() >= (row + 1) * row_bytes);
  const uint8_t* data = reinterpret_cast<const uint8_t*>(tensor.data.data()) + row * row_bytes;
  switch (tensor.type) {
    case TensorType::kF32:
      if (!out.empty()) std::memcpy(out.data(), data, row_bytes);
      return;
    case TensorType::kF16:
      return ConvertRow(data, out, F32FromF16);
    case TensorType::kBf16:
      return ConvertRow(data, out, F32FromBf16);
    case TensorType::kQ4_0:
      return DequantizeBlocks(data, out, shape, DequantizeQ4_0);
    case TensorType::kQ4_1:
      return DequantizeBlocks(data, out, shape, DequantizeQ4_1);
    case TensorType::kQ5_0:
      return DequantizeBlocks(data, out, shape, DequantizeQ5_0);
    case TensorType::kQ5_1:
      return DequantizeBlocks(data, out, shape, DequantizeQ5_1);
    case TensorType::kQ8_0:
      return DequantizeBlocks(data, out, shape, DequantizeQ8_0);
    case TensorType::kQ4_K:
      return DequantizeBlocks(data, out, shape, DequantizeQ4_K);
    case TensorType::kQ5_K:
      return DequantizeBlocks(data, out, shape, DequantizeQ5_K);
    case TensorType::kQ6_K:
      return DequantizeBlocks(data, out, shape, DequantizeQ6_K);
  }
}

}  // namespace epic
