// Python's string methods on marked text: every character of a result keeps its origin. Pure, but for the
// budget. Case is mapped one character to one (no sharp s to SS).
#ifndef EPIC_SERVICES_MODEL_JINJA_TEXT_OPS_H_
#define EPIC_SERVICES_MODEL_JINJA_TEXT_OPS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/model/jinja/budget.h"
#include "services/model/jinja/marked_text.h"

namespace epic::jinja {

// Where `text` begins and ends without white space around it (str.isspace), in bytes.
size_t TrimmedBegin(std::string_view text);
size_t TrimmedEnd(std::string_view text);

// Position of `what` at or after `from`, in linear time; npos when absent.
size_t FindText(std::string_view text, std::string_view what, size_t from = 0);

enum class Sides : uint8_t { kBoth, kLeft, kRight };
// Without `characters`: white space. With: every character of that set, never a context.
MarkedText Strip(const MarkedText& text, Sides sides, std::optional<std::string_view> characters);

// Without `separator`: at runs of white space, without empty parts. At most `limit` cuts where limit >= 0.
// A step is spent on every part before any is made: a part takes far more memory than the byte that it may
// stand for. REQUIRES: `separator` is not empty.
absl::StatusOr<std::vector<MarkedText>> Split(const MarkedText& text,
                                              std::optional<std::string_view> separator, int64_t limit,
                                              bool from_right, Budget& budget);
// Likewise.
absl::StatusOr<std::vector<MarkedText>> SplitLines(const MarkedText& text, Budget& budget);

// At most `limit` replacements where limit >= 0.
MarkedText Replace(const MarkedText& text, std::string_view from, const MarkedText& to, int64_t limit);

enum class Case : uint8_t { kUpper, kLower, kCapitalize, kTitle, kJinjaTitle };
MarkedText MapCase(const MarkedText& text, Case mode);

// Whether there are cased characters and all have this case.
bool HasOnlyCase(const MarkedText& text, bool upper);

}  // namespace epic::jinja

#endif  // EPIC_SERVICES_MODEL_JINJA_TEXT_OPS_H_
