// What the scout phase of a link measures on its way, and what the link can go on from: see ScoutPhase.
//
// Owned by its job; engine thread only, but for Bytes. The same sums whatever panels the rows ran in.
#ifndef EPIC_SERVICES_ENGINE_SCOUT_H_
#define EPIC_SERVICES_ENGINE_SCOUT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "services/engine/forward.h"
#include "services/engine/kv_block.h"
#include "services/engine/link_policy.h"
#include "services/model/model_config.h"

namespace epic {

class Scout final : public GroupObserver {
 public:
  // stored: every covered row of the prompt, ascending, none replaced. block: where the rows' keys and values
  // go; row i of it is phase.rows[i].
  Scout(const ScoutPhase& phase, uint32_t prompt_rows, const ModelConfig& config, const KvShape& shape,
        std::vector<SharedSegment> stored, const KvBlock* block);

  // Memory beside the block: linear in the rows of the phase and of the prompt.
  static uint64_t Bytes(const ScoutPhase& phase, uint32_t prompt_rows, const ModelConfig& config);
  uint64_t bytes() const;

  void OnEnter(uint32_t layer, uint32_t first_row, std::span<const float> x) override;
  bool WantsQueries(uint32_t layer) const override;
  void OnQueries(uint32_t layer, const SegmentAttentionArgs& args, ThreadPool* pool) override;

  // Once all rows ran: what was measured, by position; 0 for rows that nothing covers. Empty when some of it
  // is NaN or infinite. Shape: [N].
  std::vector<double> Scores() const;

  // The layer at which rows of the phase can enter the link, with their residual stream; 0: none is kept.
  uint32_t resume_layer() const { return resume_layer_; }
  // Of row i of the phase. Shape: [hidden].
  std::span<const float> HiddenOf(size_t i) const;

 private:
  void AddDistances(std::vector<double>* scores) const;
  void AddMass(std::vector<double>* scores) const;
  void AddMassOf(const SharedSegment& segment, uint32_t layer, std::vector<double>* scores) const;
  size_t MassOffset(uint32_t layer, uint32_t head) const;

  const ScoutPhase phase_;
  const uint32_t prompt_rows_;
  const ModelConfig& config_;
  const KvShape shape_;
  const std::vector<SharedSegment> stored_;
  const KvBlock* const block_;
  const uint32_t resume_layer_;
  std::vector<uint32_t> covered_rows_;  // kAttentionChange: those that the stored map reads from objects
  std::vector<float> hidden_;           // [rows][hidden]
  std::vector<uint64_t> sums_;          // kAttentionMass: [layers][heads][N]; kAttentionChange: [N]
  bool finite_ = true;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_SCOUT_H_
