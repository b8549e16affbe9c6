#include "loadgen/quality/timing_run.h"

#include <map>
#include <utility>

#include "common/base/random.h"
#include "common/status/status_macros.h"
#include "loadgen/datasets/shuffle.h"
#include "loadgen/quality/engine_calls.h"
#include "loadgen/quality/quality_run.h"

namespace epic::loadgen {
namespace {

constexpr double kNs = 1e-9;

class Timing {
 public:
  Timing(const Workbench& bench, ObjectCache* objects, const TimingOptions& options)
      : bench_(bench), objects_(objects), options_(options) {}

  // Makes sure that every object that the prompt reads is in memory, and keeps it there.
  absl::Status Prepare(const TimedPrompt& timed) {
    prepared_.clear();
    for (const NamedStrategy& strategy : options_.strategies) {
      const CompilePrefixKind prefix = strategy.link.compile_prefix;
      if (prepared_.contains(prefix)) continue;
      EPIC_ASSIGN_OR_RETURN(prepared_[prefix], ObjectsFor(bench_, objects_, timed.prompt, prefix));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TimingSample> Measure(const TimedPrompt& timed, const NamedStrategy& strategy,
                                       uint32_t round) const {
    const bool is_prefix = strategy.link.kind == StrategyKind::kPrefix;
    Rng rng(MixSeed(options_.seed, {timed.question, round, is_prefix ? 1u : 0u}));
    const std::vector<uint32_t> order =
        ShuffledIndices(&rng, static_cast<uint32_t>(timed.prompt.chunks.size()));
    AnswerRequest request;
    request.cache = is_prefix ? "timing" : "";
    request.pieces = PiecesOf(timed.prompt, order, prepared_.at(strategy.link.compile_prefix));
    request.strategy = strategy.link;
    request.max_tokens = 1;
    EPIC_ASSIGN_OR_RETURN(const std::shared_ptr<PendingAnswer> pending,
                          BeginAnswer(bench_.engine.get(), bench_.clock, std::move(request)));
    EPIC_ASSIGN_OR_RETURN(const Answer answer, pending->Wait());
    TimingSample sample;
    sample.question = timed.question;
    sample.ttft = answer.ttft_seconds;
    sample.queue = static_cast<double>(answer.stats.queue_ns) * kNs;
    sample.decide = static_cast<double>(answer.stats.decide_ns) * kNs;
    sample.link = static_cast<double>(answer.stats.link_ns) * kNs;
    sample.stats = answer.stats;
    EPIC_RETURN_IF_ERROR(Check(timed, strategy, sample.stats));
    return sample;
  }

 private:
  static absl::Status Check(const TimedPrompt& timed, const NamedStrategy& strategy, const LinkStats& stats) {
    const uint64_t counted = uint64_t{stats.cached_tokens} + stats.recomputed_tokens + stats.fresh_tokens;
    if (stats.prompt_tokens != timed.prompt.tokens() || counted != stats.prompt_tokens) {
      return absl::InternalError("the engine counts " + std::to_string(counted) + " rows of " +
                                 std::to_string(stats.prompt_tokens) + " for a prompt of " +
                                 std::to_string(timed.prompt.tokens()) + " tokens");
    }
    if (strategy.link.kind == StrategyKind::kFull && stats.cached_tokens != 0) {
      return absl::InternalError("full read " + std::to_string(stats.cached_tokens) + " rows from a cache");
    }
    return absl::OkStatus();
  }

  const Workbench& bench_;
  ObjectCache* const objects_;
  const TimingOptions& options_;
  std::map<CompilePrefixKind, PromptObjects> prepared_;
};

}  // namespace

absl::StatusOr<std::vector<StrategyTiming>> RunTiming(
    const Workbench& bench, ObjectCache* objects, const std::vector<TimedPrompt>& prompts,
    const TimingOptions& options, const std::function<void(uint32_t rounds, uint32_t total)>& progress) {
  std::vector<StrategyTiming> timings;
  for (const NamedStrategy& strategy : options.strategies) timings.push_back({strategy.name, {}});
  const auto total = static_cast<uint32_t>(prompts.size() * options.rounds);
  uint32_t done = 0;
  Timing timing(bench, objects, options);
  const size_t count = options.strategies.size();
  for (const TimedPrompt& timed : prompts) {
    EPIC_RETURN_IF_ERROR(timing.Prepare(timed));
    // Round 0 is not counted.
    for (uint32_t round = 0; round <= options.rounds; ++round) {
      for (size_t i = 0; i < count; ++i) {
        const size_t index = (i + round) % count;
        EPIC_ASSIGN_OR_RETURN(TimingSample sample, timing.Measure(timed, options.strategies[index], round));
        if (round > 0) timings[index].samples.push_back(std::move(sample));
      }
      if (round > 0) progress(++done, total);
    }
  }
  return timings;
}

}  // namespace epic::loadgen
