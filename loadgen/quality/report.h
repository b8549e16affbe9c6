// The report of a quality run: what was asked, on what, and per strategy its quality and its times. Pure:
// results and samples in, JSON or a table out.
#ifndef EPIC_LOADGEN_QUALITY_REPORT_H_
#define EPIC_LOADGEN_QUALITY_REPORT_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "loadgen/quality/machine.h"
#include "loadgen/quality/object_cache.h"
#include "loadgen/quality/results_log.h"
#include "loadgen/quality/strategy_list.h"
#include "loadgen/quality/timing_run.h"
#include "loadgen/statistics/statistics.h"

namespace epic::loadgen {

struct ReportInput {
  nlohmann::json setup;  // a flat object: model, dataset, options, build; its fields open the report
  Machine machine;
  std::vector<NamedStrategy> strategies;
  bool answers = true;          // false: strategies but `full` did not answer on their own
  std::string baseline;         // that KL is paired with; empty: the first strategy that is not exact
  std::vector<uint64_t> asked;  // questions, left-out ones among them
  const ResultsLog* log = nullptr;
  std::vector<StrategyTiming> timings;  // with `full` among them; empty: nothing was timed
  CompileTotals compile;
  BootstrapOptions bootstrap;
};

// Errors: FailedPrecondition when every question was left out; Internal when a result is missing.
//
// Fields, beside those of the setup: cpu, isa, cores, kernel, governor; questions {asked, evaluated, resumed,
// skipped [{question, reason}]}; prompt_tokens {median, min, max}; compile {objects, tokens, seconds,
// tokens_per_second, bytes}; timing (null when nothing was timed) {prompts, samples, full_tokens_per_second
// {median, min, max}}; bootstrap {resamples, seed, confidence}; baseline; reference (as a strategy, of
// `full`); strategies, each:
//   strategy, rows_recomputed, rows_cached, rows_fresh (means over prompts)
//   kl, kl_median, kl_first, kl_ci [lo, hi], top1, f1, f1_ci, exact_match, contained
//   paired {baseline, kl_ratio, kl_ratio_ci}: KL / KL of the baseline; null for exact ones and the baseline
//   f1_relative {ratio, ci}: F1 / F1 of full; null where that is 0
//   f1, f1_ci, exact_match, contained and f1_relative are null where the strategy did not answer
//   ttft_seconds, link_seconds, decide_seconds, queue_seconds, decide_share {median, min, max},
//   full_ttft_ratio {median, min, max}: TTFT of full / TTFT, by prompt and round; link_ratio {…}: link time /
//   that of the baseline; break_even_reuses: reads after which compiling the contexts of a prompt has paid
//   Those of the last three lines are null when nothing was timed.
absl::StatusOr<nlohmann::json> MakeReport(const ReportInput& input);

// For people: the same numbers as a table.
void PrintReport(const nlohmann::json& report, std::ostream& out);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_REPORT_H_
