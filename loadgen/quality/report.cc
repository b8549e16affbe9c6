#include "loadgen/quality/report.h"

#include <algorithm>
#include <functional>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>

#include "common/status/status_macros.h"
#include "loadgen/quality/quality_run.h"

namespace epic::loadgen {
namespace {

using nlohmann::json;

bool IsExact(const NamedStrategy& strategy) {
  return strategy.link.kind == StrategyKind::kFull || strategy.link.kind == StrategyKind::kPrefix;
}

json ToJson(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}
json ToJson(const Interval& interval) { return json::array({interval.low, interval.high}); }

// One number of each result.
template <typename Get>
std::vector<double> Column(const std::vector<const PromptResult*>& results, const Get& get) {
  std::vector<double> column;
  for (const PromptResult* const result : results)
    column.push_back(static_cast<double>(std::invoke(get, *result)));
  return column;
}

template <typename Get>
json SpreadOfSamples(const StrategyTiming& timing, const Get& get) {
  std::vector<double> values;
  for (const TimingSample& sample : timing.samples) values.push_back(std::invoke(get, sample));
  return ToJson(SpreadOf(values));
}

// top's value / bottom's, sample by sample: the same prompt and round on both sides.
template <typename Get>
json RatioOfSamples(const StrategyTiming& top, const StrategyTiming& bottom, const Get& get) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(top.samples.size(), bottom.samples.size()); ++i) {
    const double below = std::invoke(get, bottom.samples[i]);
    if (below > 0) ratios.push_back(std::invoke(get, top.samples[i]) / below);
  }
  return ratios.empty() ? json(nullptr) : ToJson(SpreadOf(ratios));
}

class Reporter {
 public:
  explicit Reporter(const ReportInput& input) : input_(input) {}

  absl::StatusOr<json> Make() {
    for (const uint64_t question : input_.asked) {
      if (input_.log->FindSkipped(question) == nullptr) evaluated_.push_back(question);
    }
    if (evaluated_.empty()) {
      return absl::FailedPreconditionError(input_.asked.empty()
                                               ? "the dataset has no question there: lower --skip"
                                               : "every question was left out; the first because " +
                                                     *input_.log->FindSkipped(input_.asked.front()));
    }
    baseline_ = input_.baseline;
    for (const NamedStrategy& strategy : input_.strategies) {
      if (baseline_.empty() && !IsExact(strategy)) baseline_ = strategy.name;
    }
    EPIC_ASSIGN_OR_RETURN(full_, ResultsOf(kReference));
    if (!baseline_.empty()) {
      EPIC_ASSIGN_OR_RETURN(base_, ResultsOf(baseline_));
    }
    json report = input_.setup;
    AddRun(&report);
    EPIC_ASSIGN_OR_RETURN(report["reference"], Row({kReference, {.kind = StrategyKind::kFull}}));
    report["strategies"] = json::array();
    for (const NamedStrategy& strategy : input_.strategies) {
      EPIC_ASSIGN_OR_RETURN(json row, Row(strategy));
      report["strategies"].push_back(std::move(row));
    }
    return report;
  }

 private:
  absl::StatusOr<std::vector<const PromptResult*>> ResultsOf(const std::string& strategy) const {
    std::vector<const PromptResult*> results;
    for (const uint64_t question : evaluated_) {
      results.push_back(input_.log->Find(question, strategy));
      if (results.back() == nullptr) {
        return absl::InternalError("question " + std::to_string(question) + " has no result of '" + strategy +
                                   "'");
      }
    }
    return results;
  }

  const StrategyTiming* TimingOf(const std::string& strategy) const {
    for (const StrategyTiming& timing : input_.timings) {
      if (timing.strategy == strategy && !timing.samples.empty()) return &timing;
    }
    return nullptr;
  }

  void AddRun(json* report) const {
    const Machine& machine = input_.machine;
    (*report)["cpu"] = machine.cpu;
    (*report)["isa"] = machine.isa;
    (*report)["cores"] = machine.cores;
    (*report)["kernel"] = machine.kernel;
    (*report)["governor"] = machine.governor;
    json skipped = json::array();
    for (const uint64_t question : input_.asked) {
      const std::string* const reason = input_.log->FindSkipped(question);
      if (reason != nullptr) skipped.push_back({{"question", question}, {"reason", *reason}});
    }
    (*report)["questions"] = {{"asked", input_.asked.size()},
                              {"evaluated", evaluated_.size()},
                              {"resumed", input_.log->resumed()},
                              {"skipped", std::move(skipped)}};
    (*report)["prompt_tokens"] = ToJson(SpreadOf(Column(full_, &PromptResult::prompt_tokens)));
    const CompileTotals& compile = input_.compile;
    (*report)["compile"] = {
        {"objects", compile.objects},
        {"tokens", compile.tokens},
        {"seconds", compile.seconds},
        {"tokens_per_second", CompileRate().has_value() ? json(*CompileRate()) : json(nullptr)},
        {"bytes", compile.bytes}};
    (*report)["timing"] = Timing();
    (*report)["bootstrap"] = {{"resamples", input_.bootstrap.resamples},
                              {"seed", input_.bootstrap.seed},
                              {"confidence", input_.bootstrap.confidence}};
    (*report)["baseline"] = baseline_.empty() ? json(nullptr) : json(baseline_);
  }

  std::optional<double> CompileRate() const {
    const CompileTotals& compile = input_.compile;
    if (compile.tokens == 0 || compile.seconds <= 0) return std::nullopt;
    return static_cast<double>(compile.tokens) / compile.seconds;
  }

  json Timing() const {
    const StrategyTiming* const full = TimingOf(kReference);
    if (full == nullptr) return nullptr;
    std::vector<uint64_t> prompts;
    for (const TimingSample& sample : full->samples) {
      if (prompts.empty() || prompts.back() != sample.question) prompts.push_back(sample.question);
    }
    return {{"prompts", prompts},
            {"samples", full->samples.size()},
            {"requests_at_once", 1},
            {"full_tokens_per_second", SpreadOfSamples(*full, [](const TimingSample& sample) {
               return sample.stats.prompt_tokens / sample.ttft;
             })}};
  }

  absl::StatusOr<json> Row(const NamedStrategy& strategy) const {
    EPIC_ASSIGN_OR_RETURN(const std::vector<const PromptResult*> results, ResultsOf(strategy.name));
    const std::vector<double> kl = Column(results, &PromptResult::KlMean);
    json row = {
        {"strategy", strategy.name},
        {"rows_recomputed", Mean(Column(results, &PromptResult::recomputed))},
        {"rows_cached", Mean(Column(results, &PromptResult::cached))},
        {"rows_fresh", Mean(Column(results, &PromptResult::fresh))},
        {"kl", Mean(kl)},
        {"kl_median", Median(kl)},
        {"kl_first", Mean(Column(results, [](const PromptResult& result) { return result.kl.front(); }))},
        {"kl_ci", ToJson(MeanInterval(kl, input_.bootstrap))},
        {"top1", Mean(Column(results, &PromptResult::Top1))}};
    row["paired"] = Paired(strategy, kl);
    AddAnswers(strategy, results, &row);
    AddTimes(strategy.name, &row);
    return row;
  }

  void AddAnswers(const NamedStrategy& strategy, const std::vector<const PromptResult*>& results,
                  json* row) const {
    for (const char* const name : {"f1", "f1_ci", "exact_match", "contained", "f1_relative"}) {
      (*row)[name] = nullptr;
    }
    if (!input_.answers && strategy.name != kReference) return;
    const std::vector<double> f1 = Column(results, &PromptResult::f1);
    (*row)["f1"] = Mean(f1);
    (*row)["f1_ci"] = ToJson(MeanInterval(f1, input_.bootstrap));
    (*row)["exact_match"] = Mean(Column(results, &PromptResult::exact_match));
    (*row)["contained"] = Mean(Column(results, &PromptResult::contained));
    const std::optional<Ratio> relative = MeanRatio(f1, Column(full_, &PromptResult::f1), input_.bootstrap);
    if (relative.has_value()) {
      (*row)["f1_relative"] = {{"ratio", relative->value}, {"ci", ToJson(relative->interval)}};
    }
  }

  json Paired(const NamedStrategy& strategy, const std::vector<double>& kl) const {
    if (base_.empty() || IsExact(strategy) || strategy.name == baseline_) return nullptr;
    const std::optional<Ratio> ratio = MeanRatio(kl, Column(base_, &PromptResult::KlMean), input_.bootstrap);
    if (!ratio.has_value()) return nullptr;
    return {{"baseline", baseline_}, {"kl_ratio", ratio->value}, {"kl_ratio_ci", ToJson(ratio->interval)}};
  }

  void AddTimes(const std::string& strategy, json* row) const {
    for (const char* const name : {"ttft_seconds", "link_seconds", "decide_seconds", "queue_seconds",
                                   "decide_share", "full_ttft_ratio", "link_ratio", "break_even_reuses"}) {
      (*row)[name] = nullptr;
    }
    const StrategyTiming* const timing = TimingOf(strategy);
    const StrategyTiming* const full = TimingOf(kReference);
    if (timing == nullptr || full == nullptr) return;
    (*row)["ttft_seconds"] = SpreadOfSamples(*timing, &TimingSample::ttft);
    (*row)["link_seconds"] = SpreadOfSamples(*timing, &TimingSample::link);
    (*row)["decide_seconds"] = SpreadOfSamples(*timing, &TimingSample::decide);
    (*row)["queue_seconds"] = SpreadOfSamples(*timing, &TimingSample::queue);
    (*row)["decide_share"] = SpreadOfSamples(*timing, [](const TimingSample& sample) {
      return sample.ttft > 0 ? sample.decide / sample.ttft : 0.0;
    });
    (*row)["full_ttft_ratio"] = RatioOfSamples(*full, *timing, &TimingSample::ttft);
    const StrategyTiming* const base = TimingOf(baseline_);
    if (base != nullptr) (*row)["link_ratio"] = RatioOfSamples(*timing, *base, &TimingSample::link);
    const std::optional<double> reuses = BreakEven(*full, *timing);
    if (reuses.has_value()) (*row)["break_even_reuses"] = *reuses;
  }

  // Compiling takes once what a read saves each time. Without a saving there is none.
  std::optional<double> BreakEven(const StrategyTiming& full, const StrategyTiming& timing) const {
    if (!CompileRate().has_value()) return std::nullopt;
    double saved = 0, compiled = 0;
    for (size_t i = 0; i < std::min(full.samples.size(), timing.samples.size()); ++i) {
      saved += full.samples[i].ttft - timing.samples[i].ttft;
      const LinkStats& stats = timing.samples[i].stats;
      compiled += static_cast<double>(stats.prompt_tokens - stats.fresh_tokens) / *CompileRate();
    }
    if (saved <= 0) return std::nullopt;
    return compiled / saved;
  }

  const ReportInput& input_;
  std::string baseline_;
  std::vector<uint64_t> evaluated_;
  std::vector<const PromptResult*> full_, base_;
};

std::string Number(const json& value, int digits) {
  if (!value.is_number()) return "-";
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value.get<double>();
  return out.str();
}

std::string Range(const json& pair, int digits) {
  if (!pair.is_array()) return "-";
  return "[" + Number(pair[0], digits) + ", " + Number(pair[1], digits) + "]";
}

std::string MedianText(const json& spread, int digits, double scale = 1) {
  if (!spread.is_object()) return "-";
  return Number(spread["median"].get<double>() * scale, digits);
}

void PrintRow(const json& row, std::ostream& out) {
  const json& paired = row["paired"];
  out << std::left << std::setw(34) << row["strategy"].get<std::string>() << std::right << std::setw(8)
      << Number(row["rows_recomputed"], 0) << std::setw(9) << Number(row["kl"], 4) << "  " << std::setw(18)
      << Range(row["kl_ci"], 4) << std::setw(9) << Number(row["kl_median"], 4) << std::setw(9)
      << Number(row["kl_first"], 4) << std::setw(7) << Number(row["top1"], 3) << std::setw(7)
      << Number(row["f1"], 3) << std::setw(7) << Number(row["exact_match"], 3) << "  " << std::setw(22)
      << (paired.is_object() ? Number(paired["kl_ratio"], 3) + " " + Range(paired["kl_ratio_ci"], 3) : "-")
      << std::setw(10) << MedianText(row["ttft_seconds"], 1, 1000) << std::setw(10)
      << MedianText(row["link_seconds"], 1, 1000) << std::setw(9)
      << MedianText(row["decide_seconds"], 2, 1000) << std::setw(8) << MedianText(row["full_ttft_ratio"], 1)
      << '\n';
}

}  // namespace

absl::StatusOr<json> MakeReport(const ReportInput& input) { return Reporter(input).Make(); }

void PrintReport(const json& report, std::ostream& out) {
  const json& questions = report["questions"];
  out << report["model"].get<std::string>() << " on " << report["dataset"].get<std::string>() << ": "
      << questions["evaluated"] << " of " << questions["asked"] << " questions, prompts of "
      << Number(report["prompt_tokens"]["median"], 0) << " tokens ("
      << Number(report["prompt_tokens"]["min"], 0) << ".." << Number(report["prompt_tokens"]["max"], 0)
      << ")\n";
  for (const json& skipped : questions["skipped"]) {
    out << "  question " << skipped["question"] << " was left out: " << skipped["reason"].get<std::string>()
        << '\n';
  }
  out << report["cpu"].get<std::string>() << ", " << report["isa"].get<std::string>() << ", "
      << report["threads"] << " threads, " << report["compute"].get<std::string>() << "; epic "
      << report["version"].get<std::string>() << " (" << report["commit"].get<std::string>() << ")\n";
  if (report["timing"].is_object()) {
    const json& rate = report["timing"]["full_tokens_per_second"];
    out << "times in ms, medians of " << report["timing"]["samples"]
        << ", one request at a time; full computes " << Number(rate["median"], 0) << " prompt tokens/s ("
        << Number(rate["min"], 0) << ".." << Number(rate["max"], 0) << ")\n";
  }
  out << "KL(full || strategy) in nats per token of the full answer, 95 % intervals; ratio: KL / KL of "
      << (report["baseline"].is_string() ? report["baseline"].get<std::string>() : "none") << "\n\n"
      << std::left << std::setw(34) << "strategy" << std::right << std::setw(8) << "rows" << std::setw(9)
      << "KL"
      << "  " << std::setw(18) << "" << std::setw(9) << "median" << std::setw(9) << "first" << std::setw(7)
      << "top1" << std::setw(7) << "F1" << std::setw(7) << "EM"
      << "  " << std::setw(22) << "ratio" << std::setw(10) << "TTFT" << std::setw(10) << "link"
      << std::setw(9) << "decide" << std::setw(8) << "x full" << '\n';
  const json& strategies = report["strategies"];
  const bool has_full = std::any_of(strategies.begin(), strategies.end(),
                                    [](const json& row) { return row["strategy"] == kReference; });
  if (!has_full) PrintRow(report["reference"], out);
  for (const json& row : strategies) PrintRow(row, out);
}

}  // namespace epic::loadgen
