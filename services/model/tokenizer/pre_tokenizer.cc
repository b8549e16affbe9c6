#include "services/model/tokenizer/pre_tokenizer.h"

#include <array>
#include <cstdint>

#include <utf8proc.h>

#include "services/model/utf8.h"

namespace epic {
namespace {

// \p{L}, \p{N}, \s (White_Space), everything else, and the end of what a pattern sees.
enum class Class : uint8_t { kLetter, kNumber, kSpace, kOther, kEnd };

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

Class ClassifyCodePoint(char32_t c) {
  if (IsWhiteSpace(c)) return Class::kSpace;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Class::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return Class::kNumber;
    default:
      return Class::kOther;
  }
}

constexpr std::array<Class, 128> MakeAsciiClasses() {
  std::array<Class, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool number = c >= '0' && c <= '9';
    const bool space = (c >= 9 && c <= 13) || c == ' ';
    classes[c] = letter ? Class::kLetter : number ? Class::kNumber : space ? Class::kSpace : Class::kOther;
  }
  return classes;
}
constexpr std::array<Class, 128> kAsciiClasses = MakeAsciiClasses();

// Reads a text from left to right.
class Scanner {
 public:
  // `number_is_end`: numbers were split off before, so a pattern sees the text as ending there.
  Scanner(std::string_view text, bool number_is_end) : text_(text), number_is_end_(number_is_end) {}

  Class At(size_t position) const {
    if (position >= text_.size()) return Class::kEnd;
    const Class found = RawClassAt(position);
    return number_is_end_ && found == Class::kNumber ? Class::kEnd : found;
  }
  Class RawClassAt(size_t position) const {
    const auto byte = static_cast<unsigned char>(text_[position]);
    return byte < 0x80 ? kAsciiClasses[byte] : ClassifyCodePoint(DecodeUtf8(text_, position).code_point);
  }
  size_t Next(size_t position) const { return position + Utf8Length(text_[position]); }
  // The first position from `position` on that is not of class `wanted`.
  size_t SkipAll(size_t position, Class wanted) const {
    while (At(position) == wanted) position = Next(position);
    return position;
  }
  bool IsByte(size_t position, char byte) const { return position < text_.size() && text_[position] == byte; }
  bool IsNewline(size_t position) const { return IsByte(position, '\n') || IsByte(position, '\r'); }

  // 's 't 're 've 'm 'll 'd at `position`: its end, or 0.
  size_t ContractionEnd(size_t position, bool any_case) const {
    if (!IsByte(position, '\'')) return 0;
    const char first = Letter(position + 1, any_case);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return position + 2;
    const char second = Letter(position + 2, any_case);
    if ((first == 'r' || first == 'v') && second == 'e') return position + 3;
    if (first == 'l' && second == 'l') return position + 3;
    // The only other character that folds to one of these letters: long s.
    if (any_case && text_.substr(position + 1, 2) == "\xC5\xBF") return position + 3;
    return 0;
  }

  // \s+(?!\S)|\s+ : all whitespace, but the last one stays with what follows unless it is alone.
  // REQUIRES: whitespace at `position`.
  size_t WhitespaceEnd(size_t position) const {
    size_t last = position;
    size_t end = Next(position);
    while (At(end) == Class::kSpace) {
      last = end;
      end = Next(end);
    }
    return At(end) == Class::kEnd || last == position ? end : last;
  }
  // The end of the last \r or \n in the whitespace at `position`; 0 when there is none.
  size_t LastNewlineEnd(size_t position) const {
    size_t found = 0;
    for (; At(position) == Class::kSpace; position = Next(position)) {
      if (IsNewline(position)) found = position + 1;
    }
    return found;
  }

 private:
  char Letter(size_t position, bool any_case) const {
    if (position >= text_.size()) return 0;
    const char c = text_[position];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }

  std::string_view text_;
  bool number_is_end_;
};

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t Gpt2PieceEnd(const Scanner& scan, size_t position) {
  if (const size_t end = scan.ContractionEnd(position, false)) return end;
  const size_t start = scan.IsByte(position, ' ') ? position + 1 : position;
  const Class found = scan.At(start);
  if (found == Class::kSpace || found == Class::kEnd) return scan.WhitespaceEnd(position);
  return scan.SkipAll(start, found);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
// \s+(?!\S)|\s+
size_t Gpt4PieceEnd(const Scanner& scan, size_t position, int max_digits) {
  if (const size_t end = scan.ContractionEnd(position, true)) return end;
  const Class found = scan.At(position);
  if (found == Class::kLetter) return scan.SkipAll(position, Class::kLetter);
  if (found == Class::kNumber) {
    size_t end = scan.Next(position);
    for (int digits = 1; digits < max_digits && scan.At(end) == Class::kNumber; ++digits)
      end = scan.Next(end);
    return end;
  }
  if (!scan.IsNewline(position) && scan.At(scan.Next(position)) == Class::kLetter) {
    return scan.SkipAll(scan.Next(position), Class::kLetter);
  }
  const size_t start = scan.IsByte(position, ' ') ? position + 1 : position;
  if (scan.At(start) == Class::kOther) {
    size_t end = scan.SkipAll(start, Class::kOther);
    while (scan.IsNewline(end)) ++end;
    return end;
  }
  if (const size_t end = scan.LastNewlineEnd(position)) return end;
  return scan.WhitespaceEnd(position);
}

}  // namespace

size_t PieceEnd(PreTokenizer pre, std::string_view text, size_t position) {
  switch (pre) {
    case PreTokenizer::kNone:
      return text.size();
    case PreTokenizer::kGpt2:
      return Gpt2PieceEnd(Scanner(text, false), position);
    case PreTokenizer::kSmolLm: {
      const Scanner scan(text, true);
      if (scan.RawClassAt(position) == Class::kNumber) return scan.Next(position);
      return Gpt2PieceEnd(scan, position);
    }
    case PreTokenizer::kQwen2:
      return Gpt4PieceEnd(Scanner(text, false), position, 1);
    case PreTokenizer::kLlamaBpe:
      return Gpt4PieceEnd(Scanner(text, false), position, 3);
  }
  return text.size();
}

}  // namespace epic
