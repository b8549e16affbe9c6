#include "services/model/jinja/fixed_date.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"

namespace epic::jinja {
namespace {

constexpr std::pair<std::string_view, std::string_view> kConversions[] = {
    {"d", "26"},         {"-d", "26"},      {"e", "26"},   {"b", "Jul"}, {"h", "Jul"},    {"B", "July"},
    {"m", "07"},         {"-m", "7"},       {"Y", "2024"}, {"y", "24"},  {"H", "00"},     {"I", "12"},
    {"M", "00"},         {"S", "00"},       {"p", "AM"},   {"j", "208"}, {"A", "Friday"}, {"a", "Fri"},
    {"F", "2024-07-26"}, {"T", "00:00:00"}, {"%", "%"}};

}  // namespace

absl::StatusOr<std::string> FormatFixedDate(std::string_view format) {
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out.push_back(format[at]);
      continue;
    }
    const size_t length = at + 1 < format.size() && format[at + 1] == '-' ? 2 : 1;
    const std::string_view name = format.substr(at + 1, length);
    const auto it = std::find_if(std::begin(kConversions), std::end(kConversions),
                                 [&](const auto& c) { return c.first == name; });
    if (it == std::end(kConversions)) {
      return absl::InvalidArgumentError(absl::StrCat("strftime_now does not know %", ToAbsl(name)));
    }
    out += it->second;
    at += length;
  }
  return out;
}

}  // namespace epic::jinja
