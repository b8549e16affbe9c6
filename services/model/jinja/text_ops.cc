#include "services/model/jinja/text_ops.h"

#include <algorithm>
#include <cstring>
#include <string>

#include <utf8proc.h>

#include "common/status/status_macros.h"
#include "services/model/utf8.h"

namespace epic::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// The character at `at`; U+FFFF for a placeholder, which no operation treats specially.
char32_t CharacterAt(std::string_view text, size_t at) {
  return text[at] == MarkedText::kPlaceholder ? 0xFFFF : DecodeUtf8(text, at).code_point;
}

size_t EndOf(std::string_view text, size_t at) {
  return text[at] == MarkedText::kPlaceholder ? at + 1 : at + Utf8Length(text[at]);
}

size_t BeginOfLast(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool IsInSet(std::string_view text, size_t at, std::optional<std::string_view> characters) {
  if (text[at] == MarkedText::kPlaceholder) return false;
  if (!characters) return IsSpace(CharacterAt(text, at));
  return characters->find(text.substr(at, EndOf(text, at) - at)) != kNone;
}

size_t StrippedBegin(std::string_view text, std::optional<std::string_view> characters) {
  size_t begin = 0;
  while (begin < text.size() && IsInSet(text, begin, characters)) begin = EndOf(text, begin);
  return begin;
}

size_t StrippedEnd(std::string_view text, std::optional<std::string_view> characters) {
  while (!text.empty()) {
    const size_t last = BeginOfLast(text);
    if (!IsInSet(text, last, characters)) break;
    text = text.substr(0, last);
  }
  return text.size();
}

absl::StatusOr<std::vector<MarkedText>> SplitAtSpaces(const MarkedText& text, int64_t limit, bool from_right,
                                                      Budget& budget) {
  const std::string_view bytes = text.bytes();
  std::vector<std::pair<size_t, size_t>> words;
  for (size_t at = 0; at < bytes.size();) {
    if (IsInSet(bytes, at, {})) {
      at = EndOf(bytes, at);
      continue;
    }
    const size_t begin = at;
    while (at < bytes.size() && !IsInSet(bytes, at, {})) at = EndOf(bytes, at);
    EPIC_RETURN_IF_ERROR(budget.Spend(1));
    words.emplace_back(begin, at);
  }
  if (limit >= 0 && words.size() > static_cast<size_t>(limit) + 1) {
    // What is past the limit stays one part, with the space inside it.
    const auto keep = static_cast<size_t>(limit);
    if (from_right) {
      const size_t joined_end = words[words.size() - keep - 1].second;
      words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(keep) - 1);
      words[0] = {0, joined_end};
    } else {
      words.resize(keep + 1);
      words[keep].second = bytes.size();
    }
  }
  std::vector<MarkedText> parts;
  for (const auto& [begin, end] : words) parts.push_back(text.Slice(begin, end));
  return parts;
}

bool IsLineBreak(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

char32_t ToUpper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t ToLower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t ToTitle(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

// A character before a word, for the filter `title`.
bool StartsJinjaWord(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || (IsSpace(c));
}

bool IsCased(char32_t c) { return ToUpper(c) != c || ToLower(c) != c; }

}  // namespace

size_t TrimmedBegin(std::string_view text) { return StrippedBegin(text, {}); }
size_t TrimmedEnd(std::string_view text) { return StrippedEnd(text, {}); }

size_t FindText(std::string_view text, std::string_view what, size_t from) {
  if (what.empty()) return from <= text.size() ? from : kNone;
  if (from >= text.size()) return kNone;
  const void* found = ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? kNone : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

MarkedText Strip(const MarkedText& text, Sides sides, std::optional<std::string_view> characters) {
  const std::string_view bytes = text.bytes();
  const size_t begin = sides == Sides::kRight ? 0 : StrippedBegin(bytes, characters);
  const size_t end = sides == Sides::kLeft ? bytes.size() : StrippedEnd(bytes, characters);
  return begin < end ? text.Slice(begin, end) : MarkedText();
}

absl::StatusOr<std::vector<MarkedText>> Split(const MarkedText& text,
                                              std::optional<std::string_view> separator, int64_t limit,
                                              bool from_right, Budget& budget) {
  if (!separator) return SplitAtSpaces(text, limit, from_right, budget);
  std::vector<size_t> cuts;
  if (from_right) {
    size_t end = text.size();
    while (limit < 0 || static_cast<int64_t>(cuts.size()) < limit) {
      if (end < separator->size()) break;
      const size_t found = std::string_view(text.bytes()).rfind(*separator, end - separator->size());
      if (found == kNone) break;
      EPIC_RETURN_IF_ERROR(budget.Spend(1));
      cuts.push_back(found);
      end = found;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    for (size_t at = FindText(text.bytes(), *separator); at != kNone;
         at = FindText(text.bytes(), *separator, at + separator->size())) {
      if (limit >= 0 && static_cast<int64_t>(cuts.size()) >= limit) break;
      EPIC_RETURN_IF_ERROR(budget.Spend(1));
      cuts.push_back(at);
    }
  }
  std::vector<MarkedText> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parts.push_back(text.Slice(begin, cut));
    begin = cut + separator->size();
  }
  parts.push_back(text.Slice(begin, text.size()));
  return parts;
}

absl::StatusOr<std::vector<MarkedText>> SplitLines(const MarkedText& text, Budget& budget) {
  const std::string_view bytes = text.bytes();
  std::vector<MarkedText> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = EndOf(bytes, at);
    if (!IsLineBreak(CharacterAt(bytes, at))) {
      at = end;
      continue;
    }
    EPIC_RETURN_IF_ERROR(budget.Spend(1));
    lines.push_back(text.Slice(begin, at));
    const bool pair = bytes.substr(at, 2) == "\r\n";
    at = begin = pair ? at + 2 : end;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
}

MarkedText Replace(const MarkedText& text, std::string_view from, const MarkedText& to, int64_t limit) {
  MarkedText out;
  size_t plain = 0;
  int64_t done = 0;
  if (from.empty()) {  // between all characters, as Python does
    for (size_t at = 0; at <= text.size() && (limit < 0 || done < limit); ++done) {
      out.Append(to);
      if (at == text.size()) return out;
      const size_t end = text.CharacterEnd(at);
      out.Append(text, at, end);
      plain = at = end;
    }
    out.Append(text, plain, text.size());
    return out;
  }
  for (size_t at = FindText(text.bytes(), from); at != kNone && (limit < 0 || done < limit); ++done) {
    out.Append(text, plain, at);
    out.Append(to);
    plain = at + from.size();
    at = FindText(text.bytes(), from, plain);
  }
  out.Append(text, plain, text.size());
  return out;
}

MarkedText MapCase(const MarkedText& text, Case mode) {
  MarkedText out;
  bool word_start = true;
  std::string mapped;
  for (size_t at = 0; at < text.size(); at = text.CharacterEnd(at)) {
    if (text.bytes()[at] == MarkedText::kPlaceholder) {
      out.Append(text, at, at + 1);
      word_start = mode == Case::kTitle;
      continue;
    }
    const char32_t c = CharacterAt(text.bytes(), at);
    const bool upper = mode == Case::kUpper || (mode != Case::kLower && word_start);
    mapped.clear();
    AppendUtf8(
        upper ? (mode == Case::kUpper || mode == Case::kJinjaTitle ? ToUpper(c) : ToTitle(c)) : ToLower(c),
        mapped);
    out.AppendLike(mapped, text, at);
    if (mode == Case::kTitle) {
      word_start = !IsCased(c);
    } else {
      word_start = mode == Case::kJinjaTitle && StartsJinjaWord(c);
    }
  }
  return out;
}

bool HasOnlyCase(const MarkedText& text, bool upper) {
  bool cased = false;
  for (size_t at = 0; at < text.size(); at = text.CharacterEnd(at)) {
    const char32_t c = CharacterAt(text.bytes(), at);
    if (!IsCased(c)) continue;
    if (c != (upper ? ToUpper(c) : ToLower(c))) return false;
    cased = true;
  }
  return cased;
}

}  // namespace epic::jinja
