#include "services/model/jinja/lexer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/jinja/text_ops.h"
#include "services/model/utf8.h"

namespace epic::jinja {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool IsNameByte(char c) { return IsNameStart(c) || IsDigit(c); }
bool IsSpaceByte(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// All newlines become \n, and one at the very end is dropped.
std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) EPIC_RETURN_IF_ERROR(LexTextAndTag());
    Add(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  bool StartsWith(std::string_view text) const {
    return std::string_view(source_).substr(position_, text.size()) == text;
  }
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void Advance(size_t count) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                    source_.begin() + static_cast<std::ptrdiff_t>(position_ + count), '\n'));
    position_ += count;
  }
  void SkipSpaces() {
    size_t end = position_;
    while (end < source_.size() && IsSpaceByte(source_[end])) ++end;
    Advance(end - position_);
  }
  size_t FindTag() const {
    size_t at = position_;
    while ((at = source_.find('{', at)) != std::string::npos) {
      if (at + 1 < source_.size() &&
          (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#')) {
        return at;
      }
      ++at;
    }
    return std::string::npos;
  }

  // `sign` is what follows the opening of the tag after `data`.
  void AddData(std::string_view data, char sign, bool variable) {
    if (sign == '-') {
      data = data.substr(0, TrimmedEnd(data));
    } else if (sign != '+' && !variable) {
      const size_t line_begin = data.rfind('\n') + 1;  // 0 when there is none
      const std::string_view last = data.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && std::all_of(last.begin(), last.end(), IsSpaceByte)) {
        data = data.substr(0, line_begin);
      }
    }
    if (!data.empty()) Add(TokenKind::kData, std::string(data));
  }

  char TakeSign() {
    const char sign = position_ < source_.size() ? source_[position_] : '\0';
    if (sign != '-' && sign != '+') return '\0';
    Advance(1);
    return sign;
  }

  absl::Status LexTextAndTag() {
    const size_t tag = FindTag();
    if (tag == std::string::npos) {
      Add(TokenKind::kData, source_.substr(position_));
      Advance(source_.size() - position_);
      return absl::OkStatus();
    }
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char opener = source_[tag + 1];
    AddData(std::string_view(source_).substr(position_, tag - position_), sign, opener == '{');
    Advance(tag + 2 - position_);
    TakeSign();
    line_starting_ = false;
    if (opener == '#') return LexComment();
    if (opener == '%' && TakeRawBegin()) return LexRaw();
    Add(opener == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, {});
    return LexTag(opener == '{');
  }

  absl::Status LexComment() {
    const int line = line_;
    const size_t end = source_.find("#}", position_);
    if (end == std::string::npos) return SyntaxError(line, "a comment has no end '#}'");
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Advance(end + 2 - position_);
    EndTag(sign, true);
    return absl::OkStatus();
  }

  // After the closing mark: what white space it takes away.
  void EndTag(char sign, bool trim_newline) {
    const size_t before = position_;
    if (sign == '-') {
      SkipSpaces();
    } else if (trim_newline && sign != '+' && position_ < source_.size() && source_[position_] == '\n') {
      Advance(1);
    }
    line_starting_ = position_ > before && source_[position_ - 1] == '\n';
  }

  // Whether {% raw %} stands here; takes it.
  bool TakeRawBegin() {
    size_t at = position_;
    const auto skip = [&] {
      while (at < source_.size() && IsSpaceByte(source_[at])) ++at;
    };
    skip();
    if (source_.compare(at, 3, "raw") != 0) return false;
    at += 3;
    skip();
    const bool dash = source_.compare(at, 3, "-%}") == 0;
    if (!dash && source_.compare(at, 2, "%}") != 0) return false;
    Advance(at + (dash ? 3 : 2) - position_);
    EndTag(dash ? '-' : '\0', false);
    return true;
  }

  absl::Status LexRaw() {
    const int line = line_;
    const size_t begin = position_;
    for (size_t tag = source_.find("{%", begin); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      size_t at = tag + 2;
      const char sign =
          at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at++] : '\0';
      while (at < source_.size() && IsSpaceByte(source_[at])) ++at;
      if (source_.compare(at, 6, "endraw") != 0) continue;
      at += 6;
      while (at < source_.size() && IsSpaceByte(source_[at])) ++at;
      const char end_sign =
          at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at++] : '\0';
      if (source_.compare(at, 2, "%}") != 0) continue;
      AddData(std::string_view(source_).substr(begin, tag - begin), sign, false);
      Advance(at + 2 - position_);
      EndTag(end_sign, true);
      return absl::OkStatus();
    }
    return SyntaxError(line, "'raw' has no 'endraw'");
  }

  // Takes the end of the tag if it stands here.
  bool TakeTagEnd(bool variable) {
    const std::string_view mark = variable ? "}}" : "%}";
    char sign = '\0';
    if (position_ < source_.size() &&
        (source_[position_] == '-' || (!variable && source_[position_] == '+'))) {
      sign = source_[position_];
    }
    const size_t at = position_ + (sign == '\0' ? 0 : 1);
    if (source_.compare(at, 2, mark) != 0) return false;
    Advance(at + 2 - position_);
    Add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, {});
    EndTag(sign, !variable);
    return true;
  }

  absl::Status LexTag(bool variable) {
    const int line = line_;
    std::string open;  // brackets
    while (true) {
      SkipSpaces();
      if (position_ >= source_.size())
        return SyntaxError(line, variable ? "'{{' has no '}}'" : "'{%' has no '%}'");
      if (open.empty() && TakeTagEnd(variable)) return absl::OkStatus();
      const char c = source_[position_];
      if (IsDigit(c)) {
        EPIC_RETURN_IF_ERROR(LexNumber());
      } else if (IsNameStart(c)) {
        size_t end = position_;
        while (end < source_.size() && IsNameByte(source_[end])) ++end;
        Add(TokenKind::kName, source_.substr(position_, end - position_));
        Advance(end - position_);
      } else if (c == '\'' || c == '"') {
        EPIC_RETURN_IF_ERROR(LexString(c));
      } else {
        EPIC_RETURN_IF_ERROR(LexOperator(open));
      }
    }
  }

  absl::Status LexOperator(std::string& open) {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*",
                                                      "/",  "%",  "~",  "(",  ")",  "[",  "]", "{", "}",
                                                      "<",  ">",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view text : kOperators) {
      if (!StartsWith(text)) continue;
      const char c = text[0];
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c)
          return SyntaxError(line_, absl::StrCat("unexpected '", ToAbsl(text), "'"));
        open.pop_back();
      }
      Add(TokenKind::kOperator, std::string(text));
      Advance(text.size());
      return absl::OkStatus();
    }
    return SyntaxError(line_, "unexpected character in a tag");
  }

  absl::Status LexNumber() {
    size_t end = position_;
    std::string text;
    bool real = false;
    const auto digits = [&] {
      while (end < source_.size() && (IsDigit(source_[end]) || source_[end] == '_')) {
        if (source_[end] != '_') text.push_back(source_[end]);
        ++end;
      }
    };
    digits();
    // In a.1.2 there are two indices.
    const bool index = tokens_.back().kind == TokenKind::kOperator && tokens_.back().text == ".";
    if (!index && end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
      real = true;
      text.push_back(source_[end++]);
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t at = end + 1;
      if (at < source_.size() && (source_[at] == '+' || source_[at] == '-')) ++at;
      if (at < source_.size() && IsDigit(source_[at])) {
        real = true;
        text.append(source_, end, at - end);
        end = at;
        digits();
      }
    }
    if (end < source_.size() && IsNameStart(source_[end])) return SyntaxError(line_, "malformed number");
    Add(real ? TokenKind::kFloat : TokenKind::kInteger, text);
    Advance(end - position_);
    return absl::OkStatus();
  }

  absl::Status LexString(char quote) {
    const int line = line_;
    std::string text;
    size_t at = position_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\' || at + 1 >= source_.size()) {
        text.push_back(source_[at++]);
        continue;
      }
      const std::optional<size_t> used = Unescape(at + 1, text);
      if (!used) return SyntaxError(line, "malformed escape in a string");
      at += 1 + *used;
    }
    if (at >= source_.size()) return SyntaxError(line, "a string has no end");
    Add(TokenKind::kString, std::move(text));
    Advance(at + 1 - position_);
    return absl::OkStatus();
  }

  // Appends what the escape at `at` (after the backslash) means; returns how many bytes it takes.
  std::optional<size_t> Unescape(size_t at, std::string& text) const {
    static constexpr std::string_view kFrom = "nrtabfv\\'\"";
    static constexpr std::string_view kTo = "\n\r\t\a\b\f\v\\'\"";
    const char c = source_[at];
    if (c == '\n') return 1;
    if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
      text.push_back(kTo[known]);
      return 1;
    }
    const size_t length = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const bool octal = c >= '0' && c <= '7';
    if (length == 0 && !octal) {
      text.append({'\\', c});
      return 1;
    }
    uint32_t value = 0;
    size_t used = octal ? 0 : 1;
    const size_t end = octal ? 3 : 1 + length;
    for (; used < end && at + used < source_.size(); ++used) {
      const char digit = source_[at + used];
      const int number = IsDigit(digit)                 ? digit - '0'
                         : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                         : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                        : 99;
      if (number >= (octal ? 8 : 16)) break;
      value = value * (octal ? 8 : 16) + static_cast<uint32_t>(number);
    }
    if (!octal && used != end) return std::nullopt;
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return std::nullopt;
    AppendUtf8(value, text);
    return used;
  }

  const std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text before this point ended a line
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status SyntaxError(int line, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("chat template, line ", line, ": ", ToAbsl(what)));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  return Lexer(NormalizeNewlines(source)).Run();
}

}  // namespace epic::jinja
