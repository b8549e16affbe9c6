#include "services/model/tokenizer/nfc.h"

#include <algorithm>
#include <vector>

#include <utf8proc.h>

#include "common/base/check.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);

// Below U+0300 every character is its own normal form and no two of them compose.
bool IsTriviallyNormal(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
}

utf8proc_propval_t CombiningClass(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

// Canonical order: each run of combining characters by class, stable. The library's own sort is quadratic.
void SortCombiningRuns(std::vector<utf8proc_int32_t>& points) {
  size_t begin = 0;
  while (begin < points.size()) {
    size_t end = begin;
    while (end < points.size() && CombiningClass(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + begin, points.begin() + end,
                     [](auto a, auto b) { return CombiningClass(a) < CombiningClass(b); });
    begin = end + 1;
  }
}

}  // namespace

std::string NormalizeNfc(std::string_view text) {
  if (IsTriviallyNormal(text)) return std::string(text);
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Step step = DecodeUtf8(text, position);
    position += step.length;
    utf8proc_int32_t parts[16];
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(step.code_point),
                                                           parts, std::size(parts), kCompose, &boundary);
    EPIC_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    points.insert(points.end(), parts, parts + count);
  }
  SortCombiningRuns(points);
  const utf8proc_ssize_t length =
      utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()), kCompose);
  EPIC_CHECK(length >= 0);
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i) AppendUtf8(static_cast<char32_t>(points[i]), out);
  return out;
}

}  // namespace epic
