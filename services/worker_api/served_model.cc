#include "services/worker_api/served_model.h"

#include <optional>

namespace epic {

std::vector<TokenId> CompilePrefixTokens(const Tokenizer& tokenizer, CompilePrefixKind kind,
                                         std::span<const TokenId> head) {
  if (kind == CompilePrefixKind::kNone) return {};
  if (kind == CompilePrefixKind::kSystem) return {head.begin(), head.end()};
  std::optional<TokenId> token;
  if (tokenizer.add_bos()) token = tokenizer.bos();
  if (!token.has_value()) token = tokenizer.ControlToken("<|endoftext|>");
  if (!token.has_value()) token = tokenizer.eos();
  if (!token.has_value()) return {};
  return std::vector<TokenId>(kind == CompilePrefixKind::kBos ? 1 : 4, *token);
}

ObjectVariant VariantOf(const Engine& engine, CompilePrefixKind kind,
                        std::span<const TokenId> prefix_tokens) {
  ObjectVariant variant{
      .prefix = kind, .prefix_tokens = {}, .dtype = engine.kv_dtype(), .compute = engine.compute()};
  if (kind != CompilePrefixKind::kNone) variant.prefix_tokens = Sha256Of(AsBytes(prefix_tokens));
  return variant;
}

}  // namespace epic
