// The strategies of a run, by the spellings of the command line. Pure.
//
// A spelling is what the engine parses, with its options for measurements, and perhaps "@PREFIX" behind it:
// the compile prefix of the contexts that it reads (none, bos, bos4, system), such as legolink-0@system.
#ifndef EPIC_LOADGEN_QUALITY_STRATEGY_LIST_H_
#define EPIC_LOADGEN_QUALITY_STRATEGY_LIST_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/engine/strategy.h"

namespace epic::loadgen {

struct NamedStrategy {
  std::string name;  // as spelled
  LinkStrategy link;
};

inline constexpr size_t kMostStrategies = 64;

// Spellings in one text. Separators are ';' and ','; a part KEY=VALUE behind a comma goes on with the
// spelling before it, so "naive,query-guided:layers=15-22,first=4" is two.
std::vector<std::string> SplitStrategies(std::string_view list);

// Each spelling once. Errors: InvalidArgument (none, too many, one twice, an unknown prefix); those of the
// engine's parser, with the spelling.
absl::StatusOr<std::vector<NamedStrategy>> ParseStrategies(const std::vector<std::string>& spellings);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_STRATEGY_LIST_H_
