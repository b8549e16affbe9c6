// Times every strategy on a few prompts: one request at a time, strategies interleaved, repeated.
//
// State of the caches, set on purpose: all objects are in memory; contexts stand in another order in every
// round; `full` finds nothing; `prefix` finds what earlier rounds left, which had other orders (it gets an
// order of its own in each round). Owned by one run; one thread.
#ifndef EPIC_LOADGEN_QUALITY_TIMING_RUN_H_
#define EPIC_LOADGEN_QUALITY_TIMING_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "loadgen/quality/object_cache.h"
#include "loadgen/quality/prompt_maker.h"
#include "loadgen/quality/strategy_list.h"
#include "loadgen/quality/workbench.h"

namespace epic::loadgen {

struct TimedPrompt {
  uint64_t question = 0;  // its index
  ChatPrompt prompt;
};

// One request. Seconds.
struct TimingSample {
  uint64_t question = 0;
  double ttft = 0;    // submitted to first token
  double queue = 0;   // submitted to admitted
  double decide = 0;  // choosing rows
  double link = 0;    // admitted to first logits
  LinkStats stats;
};

struct StrategyTiming {
  std::string strategy;
  std::vector<TimingSample> samples;  // sample i of each strategy is of the same prompt and round
};

struct TimingOptions {
  std::vector<NamedStrategy>
      strategies;  // timed in this order in the first round, rotated by one in each other
  uint32_t rounds = 5;
  uint64_t seed = 1;
};

// Each strategy runs once on each prompt before anything is timed. `progress` is called after each round.
// Errors: those of the engine; Internal where the engine's counts contradict the prompt, or `full` found
// anything cached (a number measured so would mean nothing).
absl::StatusOr<std::vector<StrategyTiming>> RunTiming(
    const Workbench& bench, ObjectCache* objects, const std::vector<TimedPrompt>& prompts,
    const TimingOptions& options, const std::function<void(uint32_t rounds, uint32_t total)>& progress);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_TIMING_RUN_H_
