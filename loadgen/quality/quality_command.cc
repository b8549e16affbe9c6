#include "loadgen/quality/quality_command.h"

#include <algorithm>
#include <iomanip>
#include <memory>
#include <optional>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "common/base/version.h"
#include "common/status/status_macros.h"
#include "loadgen/datasets/dataset.h"
#include "loadgen/quality/machine.h"
#include "loadgen/quality/object_cache.h"
#include "loadgen/quality/quality_run.h"
#include "loadgen/quality/report.h"
#include "loadgen/quality/results_log.h"
#include "loadgen/quality/strategy_list.h"
#include "loadgen/quality/timing_run.h"
#include "loadgen/quality/workbench.h"

namespace epic::loadgen {
namespace {

using nlohmann::json;

// The answers that are compared have at most so many tokens, everywhere in EPIC.
constexpr uint32_t kMostTokens = 32;
constexpr uint64_t kMiB = 1 << 20;

struct Checked {
  std::vector<NamedStrategy> strategies;
  std::optional<ComputeFormat> compute;
};

absl::StatusOr<Checked> Check(const QualityFlags& flags) {
  Checked checked;
  std::vector<std::string> spellings = SplitStrategies(flags.strategies);
  spellings.insert(spellings.end(), flags.more_strategies.begin(), flags.more_strategies.end());
  EPIC_ASSIGN_OR_RETURN(checked.strategies, ParseStrategies(spellings));
  if (!flags.baseline.empty() &&
      std::find(spellings.begin(), spellings.end(), flags.baseline) == spellings.end()) {
    return absl::InvalidArgumentError("--baseline must be one of the strategies, spelled the same");
  }
  if (flags.questions == 0) return absl::InvalidArgumentError("--questions must be at least 1");
  if (flags.max_tokens == 0 || flags.max_tokens > kMostTokens) {
    return absl::InvalidArgumentError("--max-tokens must be in 1..32");
  }
  if (flags.timing_repeats > 0 && flags.timing_repeats < 5) {
    return absl::InvalidArgumentError(
        "--timing-repeats must be at least 5 for a median, or 0 to time nothing");
  }
  if (flags.timing_repeats > 0 && flags.timing_prompts == 0) {
    return absl::InvalidArgumentError(
        "--timing-prompts must be at least 1; --timing-repeats 0 times nothing");
  }
  if (flags.compute == "f32") {
    checked.compute = ComputeFormat::kF32;
  } else if (flags.compute == "bf16") {
    checked.compute = ComputeFormat::kBf16;
  } else if (flags.compute != "auto") {
    return absl::InvalidArgumentError("--compute must be auto, f32 or bf16");
  }
  return checked;
}

std::string NameOf(ComputeFormat format) { return format == ComputeFormat::kF32 ? "f32" : "bf16"; }
std::string NameOf(KvDtype dtype) { return dtype == KvDtype::kF32 ? "f32" : "bf16"; }

std::string NameOf(DecodeWeights weights) {
  return weights == DecodeWeights::kQuantized ? "quantized" : "as prompt";
}

// What a result depends on: the head of a results file.
json PinsOf(const QualityFlags& flags, const Workbench& bench, const Dataset& dataset,
            const Machine& machine) {
  return {{"model_identity", bench.model->identity().Hex()},
          {"dataset", dataset.name()},
          {"dataset_sha256", dataset.digest().Hex()},
          {"chunks", flags.chunks},
          {"passages_per_chunk", flags.passages_per_chunk},
          {"seed", flags.seed},
          {"max_tokens", flags.max_tokens},
          {"answers", !flags.no_answers},
          {"compute", NameOf(bench.engine->compute())},
          {"kv_dtype", NameOf(bench.engine->kv_dtype())},
          {"decode_weights", NameOf(bench.options.decode_weights)},
          {"isa", machine.isa},
          {"version", kVersion},
          {"commit", kCommit}};
}

// What the report opens with.
json SetupOf(const QualityFlags& flags, const Workbench& bench, json pins) {
  json setup = std::move(pins);
  setup["model"] = bench.model->config().name;
  setup["parameters"] = bench.model->parameter_count();
  setup["threads"] = bench.options.threads;
  setup["skip"] = flags.skip;
  setup["command"] = flags.command_line;
  return setup;
}

class Progress {
 public:
  Progress(const Clock* clock, std::ostream& err) : clock_(clock), err_(err), begin_ns_(clock->SteadyNs()) {}

  void Question(const QualityProgress& progress) {
    const double seconds = static_cast<double>(clock_->SteadyNs() - begin_ns_) * 1e-9;
    const double left =
        seconds / static_cast<double>(progress.done) * static_cast<double>(progress.total - progress.done);
    err_ << "  " << progress.done << "/" << progress.total << " questions, " << progress.prompt_tokens
         << " prompt tokens, " << std::fixed << std::setprecision(0) << seconds << " s, about " << left
         << " s left" << std::endl;
  }
  void Round(uint32_t rounds, uint32_t total) {
    err_ << "  timing, round " << rounds << "/" << total << std::endl;
  }

 private:
  const Clock* const clock_;
  std::ostream& err_;
  const int64_t begin_ns_;
};

// The first prompts that the run has evaluated.
absl::StatusOr<std::vector<TimedPrompt>> PromptsToTime(const QualityFlags& flags,
                                                       const DatasetOptions& options, const Workbench& bench,
                                                       const ResultsLog& log) {
  EPIC_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, Dataset::Open(options));
  std::vector<TimedPrompt> prompts;
  while (prompts.size() < flags.timing_prompts) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<Question> question, dataset->Next());
    if (!question.has_value() || question->index >= flags.skip + flags.questions) break;
    if (question->index < flags.skip || log.Find(question->index, kReference) == nullptr) continue;
    EPIC_ASSIGN_OR_RETURN(ChatPrompt prompt, MakePrompt(*bench.tokenizer, *bench.chat_template, *question));
    prompts.push_back({question->index, std::move(prompt)});
  }
  return prompts;
}

absl::StatusOr<std::vector<StrategyTiming>> Time(const QualityFlags& flags, const Checked& checked,
                                                 const std::vector<TimedPrompt>& prompts,
                                                 const Workbench& bench, ObjectCache* objects,
                                                 Progress* progress) {
  TimingOptions options;
  options.rounds = flags.timing_repeats;
  options.seed = flags.seed;
  options.strategies = checked.strategies;
  const bool has_full =
      std::any_of(options.strategies.begin(), options.strategies.end(),
                  [](const NamedStrategy& strategy) { return strategy.name == kReference; });
  // Every ratio stands beside the speed of `full`.
  if (!has_full) {
    NamedStrategy full;
    full.name = kReference;
    full.link.kind = StrategyKind::kFull;
    options.strategies.insert(options.strategies.begin(), std::move(full));
  }
  return RunTiming(bench, objects, prompts, options,
                   [progress](uint32_t rounds, uint32_t total) { progress->Round(rounds, total); });
}

}  // namespace

absl::Status RunQuality(const QualityFlags& flags, bool as_json, const Clock* clock, std::ostream& out,
                        std::ostream& err) {
  EPIC_ASSIGN_OR_RETURN(const Checked checked, Check(flags));
  const DatasetOptions dataset_options{.source = flags.dataset,
                                       .chunks = flags.chunks,
                                       .passages_per_chunk = flags.passages_per_chunk,
                                       .seed = flags.seed};
  EPIC_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> dataset, Dataset::Open(dataset_options));
  EPIC_ASSIGN_OR_RETURN(const std::unique_ptr<Workbench> bench,
                        Workbench::Open({flags.model, flags.threads, checked.compute}, clock, &err));
  ReportInput report;
  report.machine = DescribeMachine();
  const json pins = PinsOf(flags, *bench, *dataset, report.machine);
  EPIC_ASSIGN_OR_RETURN(const std::unique_ptr<ResultsLog> log, ResultsLog::Open(flags.resume, pins));
  if (log->resumed() > 0)
    err << "going on with " << log->resumed() << " results of " << flags.resume << std::endl;

  ObjectCache objects(bench->engine.get(), clock, flags.object_cache_mib * kMiB);
  Progress progress(clock, err);
  const QualityRunOptions options{checked.strategies, flags.skip, flags.questions, flags.max_tokens,
                                  !flags.no_answers};
  QualityRun run(bench.get(), &objects, &options, log.get());
  EPIC_ASSIGN_OR_RETURN(report.asked,
                        run.Run(dataset.get(), [&](const QualityProgress& p) { progress.Question(p); }));
  if (flags.timing_repeats > 0) {
    EPIC_ASSIGN_OR_RETURN(const std::vector<TimedPrompt> prompts,
                          PromptsToTime(flags, dataset_options, *bench, *log));
    EPIC_ASSIGN_OR_RETURN(report.timings, Time(flags, checked, prompts, *bench, &objects, &progress));
  }
  report.setup = SetupOf(flags, *bench, pins);
  report.strategies = checked.strategies;
  report.baseline = flags.baseline;
  report.answers = !flags.no_answers;
  report.log = log.get();
  report.compile = objects.totals();
  EPIC_ASSIGN_OR_RETURN(const json made, MakeReport(report));
  if (as_json) {
    out << made.dump(2, ' ', false, json::error_handler_t::replace) << std::endl;
  } else {
    PrintReport(made, out);
  }
  return absl::OkStatus();
}

CLI::App* AddQualityCommand(CLI::App* app, QualityFlags* flags) {
  CLI::App* quality =
      app->add_subcommand("quality", "Quality and time of link strategies on questions with contexts");
  quality->add_option("--model", flags->model, "GGUF file or Hugging Face folder")->required();
  quality
      ->add_option("--dataset", flags->dataset,
                   "JSON or JSON Lines file, plain or gzip; or generated:needle, generated:keys, "
                   "generated:classification, generated:tracking")
      ->required();
  quality->add_option(
      "--strategies", flags->strategies,
      "Spellings, separated by ',' or ';'; a part KEY=VALUE belongs to the spelling before it");
  quality
      ->add_option("--strategy", flags->more_strategies, "One more spelling, taken as it is; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  quality->add_option("--baseline", flags->baseline,
                      "The strategy that KL is paired with; default: the first "
                      "that is not exact");
  quality->add_option("--chunks", flags->chunks, "Contexts of a prompt")->required();
  quality->add_option("--passages-per-chunk", flags->passages_per_chunk, "Passages of a context");
  quality->add_option("--questions", flags->questions, "How many questions are asked")->required();
  quality->add_option("--skip", flags->skip,
                      "Questions passed over first, to report on others than were tuned on");
  quality->add_option("--max-tokens", flags->max_tokens, "Longest answer, in tokens, at most 32");
  quality->add_option("--seed", flags->seed, "Of contexts drawn, their order, and generated tasks");
  quality->add_flag(
      "--no-answers", flags->no_answers,
      "Strategies are scored, and do not answer on their own: no F1, half the time of a strategy");
  quality->add_option("--resume", flags->resume, "A results file to begin or to go on with");
  quality->add_option("--timing-repeats", flags->timing_repeats, "Rounds of timing, at least 5; 0: none");
  quality->add_option("--timing-prompts", flags->timing_prompts, "Prompts that are timed");
  quality->add_option("--threads", flags->threads, "Compute threads; default: one per core");
  quality->add_option("--compute", flags->compute, "auto, f32 or bf16");
  quality->add_option("--object-cache-mib", flags->object_cache_mib, "Memory for compiled contexts, in MiB");
  return quality;
}

}  // namespace epic::loadgen
