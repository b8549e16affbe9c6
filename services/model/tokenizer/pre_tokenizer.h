// Splits text into the pieces inside which byte-level BPE merges: the patterns gpt-2, smollm, qwen2 and
// llama-bpe as hand-written scanners over Unicode categories.
//
// Pure functions, any thread. Linear in the length of the text for every input, without recursion or
// backtracking limits; that is why these are not regular expressions. The tests compare them with PCRE2.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_PRE_TOKENIZER_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_PRE_TOKENIZER_H_

#include <cstddef>
#include <string_view>

#include "services/model/tokenizer_spec.h"

namespace epic {

// The end of the piece that starts at `position`; always past it. Pieces follow one another without gaps.
// REQUIRES: `text` is UTF-8, position < text.size() and on a character's border.
size_t PieceEnd(PreTokenizer pre, std::string_view text, size_t position);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_PRE_TOKENIZER_H_
