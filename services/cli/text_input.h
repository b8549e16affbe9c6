// Text that a user names: files, or standard input as "-". Pure but for the reading itself.
#ifndef EPIC_SERVICES_CLI_TEXT_INPUT_H_
#define EPIC_SERVICES_CLI_TEXT_INPUT_H_

#include <cstddef>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace epic {

constexpr size_t kMaxInputBytes = 64u << 20;

// What to call an input in messages: its path, or "standard input" for "-".
std::string InputName(const std::string& path);

// The text of the file, or of `standard_input` for "-".
// Errors: NotFound, or InvalidArgument for a folder, a text that is empty, too long, or not UTF-8 (with the
// place).
absl::StatusOr<std::string> ReadText(const std::string& path, std::istream& standard_input);

// Where `text` first stops being UTF-8; npos when it is all UTF-8.
size_t FirstInvalidUtf8(std::string_view text);

struct TextChunk {
  std::string source;  // file name
  std::string text;
};

// Cuts a text at paragraphs (else lines, else spaces) into chunks of at most `max_bytes`; no character is cut
// and nothing but white space at the borders is dropped. REQUIRES: max_bytes >= 64.
std::vector<std::string> SplitIntoChunks(std::string_view text, size_t max_bytes);

// The `count` chunks that, with the names of their files, share the most rare words with the question, in
// their original order; of equal texts the first.
std::vector<TextChunk> PickRelevant(std::vector<TextChunk> chunks, std::string_view question, size_t count);

}  // namespace epic

#endif  // EPIC_SERVICES_CLI_TEXT_INPUT_H_
