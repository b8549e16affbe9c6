#include "services/worker_api/served_model.h"

namespace epic {

ObjectVariant VariantOf(const Engine& engine, CompilePrefixKind kind,
                        std::span<const TokenId> prefix_tokens) {
  ObjectVariant variant{
      .prefix = kind, .prefix_tokens = {}, .dtype = engine.kv_dtype(), .compute = engine.compute()};
  if (kind != CompilePrefixKind::kNone) variant.prefix_tokens = Sha256Of(AsBytes(prefix_tokens));
  return variant;
}

}  // namespace epic
