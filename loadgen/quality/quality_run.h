// Runs every strategy on every question and logs what each did: KL from `full` over the greedy answer of
// `full`, agreement, and the score of its own greedy answer. No times are measured here (timing_run.h).
//
// `full` is computed once per prompt; contexts are compiled once for all strategies that read them in the
// same variant; scores and answers of several strategies run in the engine at the same time, which changes no
// byte of theirs. Owned by one run; one thread.
#ifndef EPIC_LOADGEN_QUALITY_QUALITY_RUN_H_
#define EPIC_LOADGEN_QUALITY_QUALITY_RUN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "loadgen/datasets/dataset.h"
#include "loadgen/quality/object_cache.h"
#include "loadgen/quality/prompt_maker.h"
#include "loadgen/quality/results_log.h"
#include "loadgen/quality/strategy_list.h"
#include "loadgen/quality/workbench.h"

namespace epic::loadgen {

struct QualityRunOptions {
  std::vector<NamedStrategy> strategies;
  uint64_t skip = 0;       // questions at the beginning that are passed over
  uint64_t questions = 0;  // that come then, at most
  uint32_t max_tokens = 32;
  bool answers = true;  // strategies answer on their own; without, results but those of `full` have no answer
};

// The name under which `full`, the reference, is logged in every run.
inline constexpr char kReference[] = "full";

struct QualityProgress {
  uint64_t done = 0;  // questions, left-out ones counted
  uint64_t total = 0;
  uint64_t prompt_tokens = 0;  // of this question
};

class QualityRun {
 public:
  // All pointers outlive the run.
  QualityRun(const Workbench* bench, ObjectCache* objects, const QualityRunOptions* options, ResultsLog* log)
      : bench_(bench), objects_(objects), options_(options), log_(log) {}

  // The questions that were asked, by index in order, those left out among them. `progress` is called after
  // each. Errors end the run; what is logged stays.
  absl::StatusOr<std::vector<uint64_t>> Run(Dataset* dataset,
                                            const std::function<void(const QualityProgress&)>& progress);

 private:
  struct Reference {
    std::vector<TokenId> continuation;  // the answer, and its end where it ended by itself
    std::vector<std::vector<float>> logits;
  };

  absl::StatusOr<uint32_t> Ask(const Question& question);
  std::vector<const NamedStrategy*> Missing(uint64_t question) const;
  absl::StatusOr<Reference> ComputeReference(const Question& question, const ChatPrompt& prompt);
  absl::Status Compare(const Question& question, const ChatPrompt& prompt, const Reference& reference,
                       std::span<const NamedStrategy* const> strategies);
  PromptResult ResultOf(const Question& question, const std::string& strategy,
                        const std::vector<TokenId>& answer, const LinkStats& stats) const;

  const Workbench* const bench_;
  ObjectCache* const objects_;
  const QualityRunOptions* const options_;
  ResultsLog* const log_;
};

// Why the engine cannot take the prompt; empty when it can. It is never silently cut.
std::string WhyUnusable(const Workbench& bench, const Question& question, const ChatPrompt& prompt,
                        uint32_t max_tokens);

// The objects of a prompt in the variant that a strategy reads. Errors: kUnsupportedParameter where the model
// has no token for the prefix; those of the engine.
absl::StatusOr<PromptObjects> ObjectsFor(const Workbench& bench, ObjectCache* objects,
                                         const ChatPrompt& prompt, CompilePrefixKind prefix);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_QUALITY_RUN_H_
