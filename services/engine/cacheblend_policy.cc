// cacheblend-r: layer 0 on all rows, keys and values of layer 1 on all rows; then the rows whose layer 1
// differs most from what is stored go on, with own text, and all others are read.
#include <algorithm>
#include <limits>
#include <utility>

#include "services/engine/link_policy.h"

namespace epic {
namespace {

// The first layer whose keys and values depend on the rows before.
constexpr uint32_t kPickLayer = 1;

class CacheBlendPolicy final : public LinkPolicy {
 public:
  explicit CacheBlendPolicy(const LinkStrategy& strategy)
      : ratio_ppm_(strategy.ratio_ppm), pick_(strategy.pick) {}

  RowPlan Before(const PromptView& prompt, uint32_t) const override {
    RowPlan plan = PlanReading(prompt, {});
    const std::vector<uint32_t> candidates = Candidates(prompt);
    if (candidates.empty()) return plan;
    const auto covered = static_cast<uint32_t>(candidates.size());
    // Even where nothing is picked, layers 0 and 1 are fresh: the scout phase runs.
    plan.picks = std::max<uint32_t>(std::min(covered, Places(prompt, covered)), 1);
    plan.final_recomputed.reset();
    if (pick_ != BlendPick::kPaper && plan.recomputed == 0) {
      plan.final_recomputed = Places(prompt, covered);
    }
    return plan;
  }

  std::optional<ScoutPhase> Scout(const PromptView& prompt, uint32_t layers) const override {
    ScoutPhase scout;
    scout.measure = pick_ == BlendPick::kAttention ? ScoutPhase::Measure::kAttentionChange
                                                   : ScoutPhase::Measure::kValueDistance;
    for (uint32_t row = 0; row < prompt.rows(); ++row) scout.rows.push_back(row);
    scout.last_layer = std::min(kPickLayer, layers - 1);
    scout.keeps = true;
    return scout;
  }

  std::vector<uint32_t> Pick(const PromptView& prompt, std::span<const double> scores) const override {
    const std::vector<uint32_t> candidates = Candidates(prompt);
    return HighestRows(candidates, scores, Places(prompt, static_cast<uint32_t>(candidates.size())));
  }

 private:
  // Rows that a place can go to.
  std::vector<uint32_t> Candidates(const PromptView& prompt) const {
    std::vector<uint32_t> rows;
    for (const CoveredRun& run : prompt.covered) {
      if (run.exact && pick_ != BlendPick::kPaper) continue;
      for (uint32_t row = run.begin; row < run.begin + run.rows; ++row) {
        // The paper's code computes the last row in any case and has it compete for no place.
        if (pick_ != BlendPick::kPaper || row + 1 < prompt.rows()) rows.push_back(row);
      }
    }
    return rows;
  }

  // How many candidates are picked: floor(r * M); under :paper what own text leaves of int((N - 1) * r),
  // since rows of own text have no stored values to be near to, and no stored ones could be read in their
  // place.
  uint32_t Places(const PromptView& prompt, uint32_t candidates) const {
    if (pick_ != BlendPick::kPaper) return Share(candidates);
    const uint32_t others = prompt.rows() - 1;
    const uint32_t own = others - candidates;
    return std::max(Share(others), own) - own;
  }

  uint32_t Share(uint32_t rows) const {
    return static_cast<uint32_t>(uint64_t{rows} * ratio_ppm_ / 1'000'000);
  }

  const uint32_t ratio_ppm_;
  const BlendPick pick_;
};

}  // namespace

std::unique_ptr<const LinkPolicy> MakeCacheBlendPolicy(const LinkStrategy& strategy) {
  return std::make_unique<CacheBlendPolicy>(strategy);
}

}  // namespace epic
