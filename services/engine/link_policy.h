// What a link strategy does: one small interface, one implementation a strategy. The engine and the services
// ask it and never look at a strategy's name.
//
// A link runs in at most two phases. Most strategies know their rows before the run: Before() is all that
// they say. A strategy that must look first has a scout phase: some rows run through the first layers,
// something is measured on the way, and Pick() chooses further rows by it; then the link runs on the rows
// before the run and the picked ones. Policies are immutable and pure: no arithmetic on keys and values, any
// thread.
#ifndef EPIC_SERVICES_ENGINE_LINK_POLICY_H_
#define EPIC_SERVICES_ENGINE_LINK_POLICY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "services/engine/row_plan.h"
#include "services/engine/strategy.h"

namespace epic {

// The phase before the link. Its rows leave in `last_layer`, once their keys, values and queries are
// computed.
struct ScoutPhase {
  enum class Measure : uint8_t {
    // Of each covered row: the squared L2 distance of its fresh values from the stored ones, in last_layer.
    // REQUIRES: all rows of the prompt run.
    kValueDistance,
    // Of each covered row: how much the attention map of last_layer changes in its column when all stored
    // keys
    // are replaced by fresh ones: sum over heads and later queries of |fresh weight - stored weight|, where
    // the stored map has the stored keys of covered rows and fresh ones of own text, and both have fresh
    // queries. REQUIRES: all rows of the prompt run.
    kAttentionChange,
    // Of each row: the attention that the scout's rows pay to it, summed over them and over every
    // measured_step-th of the layers first_measured..last_layer, the last among them.
    kAttentionMass,
  };
  Measure measure = Measure::kAttentionMass;
  std::vector<uint32_t> rows;   // ascending, not empty
  uint32_t last_layer = 0;      // < L
  uint32_t first_measured = 0;  // kAttentionMass
  uint32_t measured_step = 1;   // kAttentionMass
  uint32_t first_reading = 0;   // in layers before it the rows see themselves and what is exact in place only
  bool quantized = false;       // the rows are multiplied with quantised weights. REQUIRES: not kept
  uint32_t first_asking = 0;    // kAttentionMass: only the attention of rows from this position on counts
  bool max_of_heads = false;    // kAttentionMass: the strongest head of each row, not the mean of all
  bool value_norm = false;      // kAttentionMass: each weight times the L2 norm of the value that it reads
  // Whether something is measured on the stored values themselves, in layers up to last_layer.
  bool reads_stored() const { return measure != Measure::kAttentionMass || value_norm; }
  // Rows at a layer. True: in layers 0..last_layer the link reads these rows, all of them fresh, and computes
  // nothing there but what their queries still lack in last_layer. False: their keys and values are thrown
  // away.
  bool keeps = false;
};

class LinkPolicy {
 public:
  static std::unique_ptr<const LinkPolicy> Make(const LinkStrategy& strategy);
  virtual ~LinkPolicy() = default;

  // Whether contexts' objects are read at all. False: all their rows are computed or come from the prefix
  // cache.
  virtual bool reads_objects() const { return true; }
  // Whether the longest prefix known to the prefix cache is read.
  virtual bool reads_prefix_cache() const { return false; }
  // Whether what was computed exactly is published to the prefix cache.
  virtual bool publishes() const { return false; }
  // Whether an object that was compiled without a prefix is refused, unless it is exact in place.
  virtual bool refuses_plain_objects() const { return false; }
  // The highest layer that the strategy names; 0 when it goes by the model.
  virtual uint32_t highest_layer() const { return 0; }

  // Rows before the run: what is computed, and what is read, if nothing more is picked. `picks` of the plan
  // is not 0 when a scout phase follows. cached_prefix_rows: leading rows that the prefix cache holds.
  // REQUIRES: cached_prefix_rows <= N.
  virtual RowPlan Before(const PromptView& prompt, uint32_t cached_prefix_rows) const = 0;
  // The phase that runs before the link, in a model of `layers` layers; none for most. Called when the plan
  // has picks.
  virtual std::optional<ScoutPhase> Scout(const PromptView& prompt, uint32_t layers) const {
    return std::nullopt;
  }
  // The rows to compute beside those of Before(), ascending. scores: what was measured, [N]; not NaN.
  virtual std::vector<uint32_t> Pick(const PromptView& prompt, std::span<const double> scores) const {
    return {};
  }
};

// LinkPolicy::Make(strategy)->Before(...), for callers that ask once.
RowPlan PlanRows(std::span<const PromptPiece> pieces, const LinkStrategy& strategy,
                 uint32_t cached_prefix_rows);

// The first and last layer that query-guided measures in a model of `layers` layers.
struct LayerRange {
  uint32_t first = 0;
  uint32_t last = 0;
};
LayerRange ProbeLayers(const ProbeOptions& options, uint32_t layers);

// The `count` of `candidates` with the highest scores, ascending; of equal scores the lower row.
std::vector<uint32_t> HighestRows(std::vector<uint32_t> candidates, std::span<const double> scores,
                                  size_t count);

// Made by LinkPolicy::Make only.
std::unique_ptr<const LinkPolicy> MakeCacheBlendPolicy(const LinkStrategy& strategy);
std::unique_ptr<const LinkPolicy> MakeQueryGuidedPolicy(const LinkStrategy& strategy);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_LINK_POLICY_H_
