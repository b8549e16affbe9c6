// `epic-loadgen quality`: loads a model, asks the questions of a dataset under every strategy, times a few of
// them, and reports both together. Blocks; one run at a time.
#ifndef EPIC_LOADGEN_QUALITY_QUALITY_COMMAND_H_
#define EPIC_LOADGEN_QUALITY_QUALITY_COMMAND_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"

namespace CLI {
class App;
}  // namespace CLI

namespace epic::loadgen {

struct QualityFlags {
  std::string model;
  std::string dataset;                       // a file, or generated:TASK
  std::string strategies;                    // SplitStrategies
  std::vector<std::string> more_strategies;  // one spelling each
  std::string baseline;                      // empty: the first strategy that is not exact
  uint32_t chunks = 0;
  uint32_t passages_per_chunk = 1;
  uint64_t questions = 0;
  uint64_t skip = 0;
  uint32_t max_tokens = 32;
  uint64_t seed = 1;
  bool no_answers = false;      // strategies are scored, and do not answer on their own
  std::string resume;           // a results file; empty: none
  uint32_t timing_repeats = 5;  // 0: nothing is timed
  uint32_t timing_prompts = 2;
  uint32_t threads = 0;          // 0: one per core
  std::string compute = "auto";  // auto, f32, bf16
  uint64_t object_cache_mib = 2048;
  std::string command_line;  // for the report
};

// The report as JSON, or as a table, on `out`; progress on `err`. Errors: what is wrong with a flag, the
// model, the dataset or the results file, and what to do; those of the engine. What was logged before an
// error stays logged.
absl::Status RunQuality(const QualityFlags& flags, bool as_json, const Clock* clock, std::ostream& out,
                        std::ostream& err);

// Adds the subcommand; flags are bound to *flags, which outlives the App.
CLI::App* AddQualityCommand(CLI::App* app, QualityFlags* flags);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_QUALITY_COMMAND_H_
