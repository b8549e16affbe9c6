#include "common/storage/kv_object.h"

#include <algorithm>
#include <cstring>

namespace epic {
namespace {

constexpr uint32_t kLayoutVersion = 1;

}  // namespace

bool AllFinite(ByteSpan values, KvDtype dtype) {
  // Exponents of all ones carry into the sign's place, two or four values at a time.
  const bool f32 = dtype == KvDtype::kF32;
  const uint64_t exponents = f32 ? 0x7f8000007f800000u : 0x7f807f807f807f80u;
  const uint64_t lowest = f32 ? 0x0080000000800000u : 0x0080008000800080u;
  const uint64_t signs = f32 ? 0x8000000080000000u : 0x8000800080008000u;
  uint64_t found = 0;
  for (size_t at = 0; at < values.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;  // a rest is filled up with zeros
    std::memcpy(&word, values.data() + at, std::min(sizeof(word), values.size() - at));
    found |= ((word & exponents) + lowest) & signs;
  }
  return found == 0;
}

bool AllFinite(const KvObject& object) {
  const KvLayout& layout = object.layout();
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    if (!AllFinite(object.Layer(layer), layout.dtype)) return false;
  }
  return true;
}

Digest ObjectVariant::ToDigest() const {
  std::string fields;
  AppendField(&fields, "epic.object_variant.v1");
  AppendLittle<uint8_t>(&fields, static_cast<uint8_t>(prefix));
  AppendField(&fields, prefix_tokens.view());
  AppendLittle<uint8_t>(&fields, static_cast<uint8_t>(dtype));
  AppendLittle<uint32_t>(&fields, kLayoutVersion);
  AppendLittle<uint8_t>(&fields, static_cast<uint8_t>(compute));
  return Sha256Of(AsBytes(fields));
}

}  // namespace epic
