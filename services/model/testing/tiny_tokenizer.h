// Small but real tokenizers for tests: the same vocabulary as a TokenizerSpec, as GGUF metadata and as the
// JSON files of a Hugging Face folder. Tests only.
#ifndef EPIC_SERVICES_MODEL_TESTING_TINY_TOKENIZER_H_
#define EPIC_SERVICES_MODEL_TESTING_TINY_TOKENIZER_H_

#include <cstdint>
#include <string>

#include "services/model/testing/gguf_writer.h"
#include "services/model/tokenizer_spec.h"

namespace epic::testing {

// ChatML, as SmolLM2 and Qwen use it, without a default system message.
extern const char kTinyChatTemplate[];

// kBpe: control tokens <|endoftext|> (bos and eos), <|im_start|>, <|im_end|> (eot) are ids 0 to 2, the 256
// bytes in the byte-level alphabet ids 3 to 258, then tokens made by merges of common words, then unused
// "[PAD<id>]" up to `vocab`. kSpm: <unk>, <s>, </s> are ids 0 to 2, the 256 byte tokens ids 3 to 258, then
// characters, then tokens by falling score, then <|im_start|> and <|im_end|>, then unused ones.
// REQUIRES: vocab >= 448.
TokenizerSpec MakeTinyTokenizer(TokenizerKind kind, PreTokenizer pre, uint32_t vocab);

// The keys tokenizer.* of the spec and the chat template.
void AddTokenizerToGguf(const TokenizerSpec& spec, GgufWriter* gguf);

// tokenizer.json and tokenizer_config.json (with the chat template) that say the same as the spec.
std::string TokenizerJsonOf(const TokenizerSpec& spec);
std::string TokenizerConfigJsonOf(const TokenizerSpec& spec);

}  // namespace epic::testing

#endif  // EPIC_SERVICES_MODEL_TESTING_TINY_TOKENIZER_H_
