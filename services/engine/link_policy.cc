#include "services/engine/link_policy.h"

#include <algorithm>

#include "common/base/check.h"

namespace epic {
namespace {

// full: an exact prefill.
class FullPolicy final : public LinkPolicy {
 public:
  bool reads_objects() const override { return false; }
  bool publishes() const override { return true; }
  RowPlan Before(const PromptView& prompt, uint32_t) const override { return PlanAll(prompt); }
};

// prefix: everything after the longest exactly computed cached prefix.
class PrefixPolicy final : public LinkPolicy {
 public:
  bool reads_objects() const override { return false; }
  bool reads_prefix_cache() const override { return true; }
  bool publishes() const override { return true; }
  RowPlan Before(const PromptView& prompt, uint32_t cached_prefix_rows) const override {
    return PlanPrefix(prompt, cached_prefix_rows);
  }
};

// naive and legolink-k: the first k rows of every chunk that is not exact in place.
class FirstRowsPolicy final : public LinkPolicy {
 public:
  FirstRowsPolicy(uint32_t k, bool refuses_plain_objects)
      : k_(k), refuses_plain_objects_(refuses_plain_objects) {}
  bool refuses_plain_objects() const override { return refuses_plain_objects_; }
  RowPlan Before(const PromptView& prompt, uint32_t) const override {
    std::vector<uint32_t> rows;
    for (const CoveredRun& run : prompt.covered) {
      const uint32_t first = run.exact ? 0 : std::min(k_, run.rows);
      for (uint32_t row = 0; row < first; ++row) rows.push_back(run.begin + row);
    }
    return PlanReading(prompt, rows);
  }

 private:
  const uint32_t k_;
  const bool refuses_plain_objects_;
};

}  // namespace

std::unique_ptr<const LinkPolicy> LinkPolicy::Make(const LinkStrategy& strategy) {
  switch (strategy.kind) {
    case StrategyKind::kFull:
      return std::make_unique<FullPolicy>();
    case StrategyKind::kPrefix:
      return std::make_unique<PrefixPolicy>();
    case StrategyKind::kNaive:
      return std::make_unique<FirstRowsPolicy>(0, false);
    case StrategyKind::kLegoLink:
      return std::make_unique<FirstRowsPolicy>(strategy.k, strategy.k == 0);
    case StrategyKind::kCacheBlend:
      return MakeCacheBlendPolicy(strategy);
    case StrategyKind::kQueryGuided:
      return MakeQueryGuidedPolicy(strategy);
  }
  EPIC_CHECK(false);
}

RowPlan PlanRows(std::span<const PromptPiece> pieces, const LinkStrategy& strategy,
                 uint32_t cached_prefix_rows) {
  return LinkPolicy::Make(strategy)->Before(PromptView(pieces), cached_prefix_rows);
}

std::vector<uint32_t> HighestRows(std::vector<uint32_t> candidates, std::span<const double> scores,
                                  size_t count) {
  const size_t kept = std::min(count, candidates.size());
  const auto end = candidates.begin() + static_cast<ptrdiff_t>(kept);
  std::partial_sort(candidates.begin(), end, candidates.end(), [&](uint32_t a, uint32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  candidates.erase(end, candidates.end());
  std::sort(candidates.begin(), candidates.end());
  return candidates;
}

}  // namespace epic
