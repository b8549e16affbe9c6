// Token ids that prompts are made of beside their text: compile prefixes, and what ends a generation. Pure.
#ifndef EPIC_SERVICES_MODEL_PROMPT_TOKENS_H_
#define EPIC_SERVICES_MODEL_PROMPT_TOKENS_H_

#include <span>
#include <vector>

#include "common/storage/cache_id.h"
#include "common/storage/kv_object.h"
#include "services/model/tokenizer.h"

namespace epic {

// The tokens that a compile prefix puts before a chunk: nothing; 1 or 4 times BOS where the model adds BOS,
// else its end-of-text token <|endoftext|>, else its EOS; `head` for kSystem.
std::vector<TokenId> CompilePrefixTokens(const Tokenizer& tokenizer, CompilePrefixKind kind,
                                         std::span<const TokenId> head);

// The tokens of the vocabulary that end a generation. Ascending.
std::vector<TokenId> EndTokens(const Tokenizer& tokenizer);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_PROMPT_TOKENS_H_
