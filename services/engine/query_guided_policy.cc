// query-guided: the end of the request's own text runs through the first layers over stored keys and values;
// the rows of all chunks that it attends to most are computed.
#include <algorithm>
#include <cmath>
#include <utility>

#include "services/engine/link_policy.h"

namespace epic {
namespace {

class QueryGuidedPolicy final : public LinkPolicy {
 public:
  explicit QueryGuidedPolicy(const LinkStrategy& strategy)
      : budget_(strategy.budget), options_(strategy.probe) {}

  uint32_t highest_layer() const override {
    return options_.first_layer == ProbeOptions::kByModel
               ? 0
               : std::max(options_.first_layer, options_.last_layer);
  }

  RowPlan Before(const PromptView& prompt, uint32_t) const override {
    RowPlan plan = PlanReading(prompt, {});
    for (const CoveredRun& run : prompt.covered) plan.picks += run.exact ? 0 : std::min(budget_, run.rows);
    if (options_.shared_budget) plan.picks = SharedPicks(prompt);
    if (plan.picks == 0) return plan;
    plan.final_recomputed.reset();
    // A covered last row may be among the picked ones or beside them.
    if (plan.recomputed == 0) plan.final_recomputed = plan.picks;
    return plan;
  }

  std::optional<ScoutPhase> Scout(const PromptView& prompt, uint32_t layers) const override {
    ScoutPhase scout;
    scout.measure = ScoutPhase::Measure::kAttentionMass;
    scout.rows = prompt.OwnRows();
    if (options_.query_rows > 0 && options_.query_rows < scout.rows.size()) {
      scout.rows.erase(scout.rows.begin(), scout.rows.end() - options_.query_rows);
    }
    if (options_.asking_rows > 0 && options_.asking_rows < scout.rows.size()) {
      scout.first_asking = scout.rows[scout.rows.size() - options_.asking_rows];
    }
    const LayerRange range = ProbeLayers(options_, layers);
    scout.first_measured = range.first;
    scout.last_layer = range.last;
    scout.measured_step = options_.layer_step;
    if (options_.starts_blind) scout.first_reading = range.first;
    scout.quantized = options_.quantized;
    scout.max_of_heads = options_.max_of_heads;
    scout.value_norm = options_.value_norm;
    return scout;
  }

  std::vector<uint32_t> Pick(const PromptView& prompt, std::span<const double> measured) const override {
    const std::vector<double> scores = Weighted(prompt, measured);
    std::vector<uint32_t> picked;
    std::vector<uint32_t> rest;  // of all chunks, under a shared budget
    for (const CoveredRun& run : prompt.covered) {
      if (run.exact) continue;
      const uint32_t first = std::min({options_.first_rows, budget_, run.rows});
      std::vector<uint32_t> candidates;
      for (uint32_t row = 0; row < run.rows; ++row) {
        (row < first ? picked : candidates).push_back(run.begin + row);
      }
      if (options_.shared_budget) {
        rest.insert(rest.end(), candidates.begin(), candidates.end());
      } else {
        Append(HighestRows(std::move(candidates), scores, budget_ - first), &picked);
      }
    }
    if (options_.shared_budget) {
      const size_t taken = picked.size();
      Append(HighestRows(std::move(rest), scores, SharedPicks(prompt) - taken), &picked);
    }
    std::sort(picked.begin(), picked.end());
    return picked;
  }

 private:
  // What was measured, times how stale a row is likely to be: the further into its chunk, the more of what it
  // read was there when it was compiled alone.
  std::vector<double> Weighted(const PromptView& prompt, std::span<const double> measured) const {
    std::vector<double> scores(measured.begin(), measured.end());
    if (options_.fading_rows == 0) return scores;
    for (const CoveredRun& run : prompt.covered) {
      for (uint32_t row = 0; row < run.rows; ++row) {
        scores[run.begin + row] /= std::sqrt(1.0 + static_cast<double>(row) / options_.fading_rows);
      }
    }
    return scores;
  }

  static void Append(const std::vector<uint32_t>& rows, std::vector<uint32_t>* to) {
    to->insert(to->end(), rows.begin(), rows.end());
  }

  // budget * chunks, or all rows when there are fewer.
  uint32_t SharedPicks(const PromptView& prompt) const {
    uint64_t rows = 0, chunks = 0;
    for (const CoveredRun& run : prompt.covered) {
      if (run.exact) continue;
      rows += run.rows;
      ++chunks;
    }
    return static_cast<uint32_t>(std::min(rows, budget_ * chunks));
  }

  const uint32_t budget_;
  const ProbeOptions options_;
};

}  // namespace

LayerRange ProbeLayers(const ProbeOptions& options, uint32_t layers) {
  if (options.first_layer != ProbeOptions::kByModel) {
    return {std::min(options.first_layer, options.last_layer), options.last_layer};
  }
  return {layers / 3, std::max(layers / 3, std::min(layers - 1, 7 * layers / 8))};
}

std::unique_ptr<const LinkPolicy> MakeQueryGuidedPolicy(const LinkStrategy& strategy) {
  return std::make_unique<QueryGuidedPolicy>(strategy);
}

}  // namespace epic
