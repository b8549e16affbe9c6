// Cuts a template into text and the tokens of its tags, with white space controlled as Hugging Face sets
// Jinja up: trim_blocks and lstrip_blocks on, the last newline dropped. Pure.
#ifndef EPIC_SERVICES_MODEL_JINJA_LEXER_H_
#define EPIC_SERVICES_MODEL_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace epic::jinja {

enum class TokenKind : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,  // unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  int line = 1;
};

// The last token is kEnd. Errors: InvalidArgument with the line. REQUIRES: `source` is UTF-8.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

absl::Status SyntaxError(int line, std::string_view what);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_LEXER_H_
