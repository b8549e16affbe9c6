#include "loadgen/quality/strategy_list.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"

namespace epic::loadgen {
namespace {

constexpr std::pair<std::string_view, CompilePrefixKind> kPrefixes[] = {
    {"none", CompilePrefixKind::kNone},
    {"bos", CompilePrefixKind::kBos},
    {"bos4", CompilePrefixKind::kBos4},
    {"system", CompilePrefixKind::kSystem},
};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// KEY=VALUE: no strategy's name has a '=' before its ':'.
bool IsOption(std::string_view part) {
  const size_t equals = part.find('=');
  return equals != std::string_view::npos && part.find(':') > equals;
}

absl::StatusOr<LinkStrategy> ParseSpelling(std::string_view spelling) {
  std::optional<CompilePrefixKind> prefix;
  const size_t at = spelling.rfind('@');
  if (at != std::string_view::npos) {
    for (const auto& [name, kind] : kPrefixes) {
      if (spelling.substr(at + 1) == name) prefix = kind;
    }
    if (!prefix.has_value()) {
      return absl::InvalidArgumentError("strategy '" + std::string(spelling) +
                                        "': the compile prefix behind @ must be none, bos, bos4 or system");
    }
  }
  absl::StatusOr<LinkStrategy> strategy =
      ParseEvaluationStrategy(spelling.substr(0, at), {.compile_prefix = prefix});
  if (strategy.ok()) return strategy;
  return absl::InvalidArgumentError("strategy '" + std::string(spelling) +
                                    "': " + MessageOf(strategy.status()));
}

}  // namespace

std::vector<std::string> SplitStrategies(std::string_view list) {
  std::vector<std::string> spellings;
  bool behind_comma = false;
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(",;"), list.size());
    const std::string_view part = Trim(list.substr(0, end));
    if (behind_comma && IsOption(part) && !spellings.empty()) {
      spellings.back() += "," + std::string(part);
    } else if (!part.empty()) {
      spellings.emplace_back(part);
    }
    behind_comma = end < list.size() && list[end] == ',';
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return spellings;
}

absl::StatusOr<std::vector<NamedStrategy>> ParseStrategies(const std::vector<std::string>& spellings) {
  if (spellings.empty()) return absl::InvalidArgumentError("name at least one strategy");
  if (spellings.size() > kMostStrategies)
    return absl::InvalidArgumentError("at most 64 strategies in one run");
  std::vector<NamedStrategy> strategies;
  std::set<std::string> seen;
  for (const std::string& spelling : spellings) {
    if (!seen.insert(spelling).second) {
      return absl::InvalidArgumentError("the strategy '" + spelling + "' is named twice");
    }
    EPIC_ASSIGN_OR_RETURN(LinkStrategy link, ParseSpelling(spelling));
    strategies.push_back({spelling, std::move(link)});
  }
  return strategies;
}

}  // namespace epic::loadgen
