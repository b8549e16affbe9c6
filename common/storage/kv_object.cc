#include "common/storage/kv_object.h"

namespace epic {
namespace {
constexpr uint32_t kLayoutVersion = 1;
}  // namespace

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
