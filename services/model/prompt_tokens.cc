#include "services/model/prompt_tokens.h"

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

std::vector<TokenId> EndTokens(const Tokenizer& tokenizer) {
  std::vector<TokenId> ends;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsEndOfGeneration(id)) ends.push_back(id);
  }
  return ends;
}

}  // namespace epic
