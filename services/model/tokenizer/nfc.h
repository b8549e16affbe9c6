// Unicode normalisation form C in O(n log n), for tokenizers that ask for it.
//
// Pure, any thread. Runs of combining marks of any length are sorted, not compared pairwise.
#ifndef EPIC_SERVICES_MODEL_TOKENIZER_NFC_H_
#define EPIC_SERVICES_MODEL_TOKENIZER_NFC_H_

#include <string>
#include <string_view>

namespace epic {

// REQUIRES: `text` is UTF-8.
std::string NormalizeNfc(std::string_view text);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_TOKENIZER_NFC_H_
