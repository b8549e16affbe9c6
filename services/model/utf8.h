// UTF-8 by hand: strict decoding, validation and encoding, shared by the tokenizer, the chat templates and
// the streaming layer. Pure functions, any thread. Nothing here allocates but the results.
#ifndef EPIC_SERVICES_MODEL_UTF8_H_
#define EPIC_SERVICES_MODEL_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace epic {

// One step through bytes. `length` is what to advance by: the whole character when `valid`, else the maximal
// subpart of an ill-formed sequence (Unicode, section 3.9, table 3-7), at least 1. `incomplete`: the bytes
// are the head of a character and the text ends inside it.
struct Utf8Step {
  char32_t code_point = 0xFFFD;
  uint8_t length = 1;
  bool valid = false;
  bool incomplete = false;
};

// REQUIRES: position < text.size().
Utf8Step DecodeUtf8(std::string_view text, size_t position);

// Offset of the first byte that is not part of a well-formed character; nullopt when all are.
std::optional<size_t> FindInvalidUtf8(std::string_view text);

// REQUIRES: code_point <= 0x10FFFF and no surrogate.
void AppendUtf8(char32_t code_point, std::string& out);

// Bytes of the character whose first byte is `lead`. REQUIRES: `lead` starts a well-formed character.
inline size_t Utf8Length(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_UTF8_H_
