// What link and score jobs have in common: a prompt of pieces, planned by a strategy's policy, run in panels;
// first the policy's scout phase, where it has one, then the link. Engine thread only from Admit on.
#ifndef EPIC_SERVICES_ENGINE_PROMPT_JOB_H_
#define EPIC_SERVICES_ENGINE_PROMPT_JOB_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/engine/job.h"
#include "services/engine/link_policy.h"
#include "services/engine/scout.h"

namespace epic {

class PromptJob : public Job {
 public:
  void Admit(const JobContext& context) override;
  void OnPanel(const JobContext& context) final;
  uint64_t held_rows() const override;
  uint64_t held_bytes() const override;
  void Release() override;

 protected:
  // `appended` rows follow the prompt in its own block (a score's continuation). An empty tenant neither
  // finds nor leaves rows in the prefix cache.
  PromptJob(const JobContext& context, std::string tenant, CancelToken cancel,
            std::vector<PromptPiece> pieces, const LinkStrategy& strategy, std::span<const TokenId> appended);

  // False when one of these logits, or of the rows that ran since the last call, is NaN or infinite: the job
  // then fails. Call for all logits of panel rows.
  bool CheckPanel(const JobContext& context, std::span<const float> logits);
  // Marks the first logits of the prompt.
  void MarkLinked(const JobContext& context);

  const std::vector<TokenId>& prompt() const { return plan_.tokens; }
  // What rows behind the prompt see of it. Valid once it is linked.
  std::span<const LayerBand> prompt_bands() const { return prompt_bands_; }
  LinkStats stats_;

 private:
  void Plan(const JobContext& context);
  void BeginScout(const JobContext& context);
  void EndScout(const JobContext& context);
  void BeginLink(const JobContext& context);
  // Has rows that went through the scout enter the link behind what they share with it.
  void ResumeRows(const JobContext& context, const KvBlock& scouted);
  // Of the rows that run and of the residual streams that are kept of them, at most.
  uint64_t MostBytes(const JobContext& context) const;
  // Has rows wait for the layers that their bands read.
  void WaitForBands(PanelRun* run) const;
  // The first piece with the object of this segment.
  size_t PieceOf(const SharedSegment& segment) const;
  std::vector<SharedSegment> SegmentsOf(const RowPlan& plan) const;
  std::vector<SharedSegment> StoredSegments() const;
  // Gives the rows to the prefix cache when they are exact ones and the strategy publishes them. REQUIRES:
  // all panels ran and their logits were finite.
  void Publish(const JobContext& context);

  const std::string tenant_;
  const std::unique_ptr<const LinkPolicy> policy_;
  std::vector<PromptPiece> pieces_;
  const PromptView view_;  // of pieces_
  std::vector<TokenId> appended_;
  RowPlan plan_;
  std::optional<ScoutPhase> scout_phase_;  // none once it is over
  std::unique_ptr<Scout> scout_;           // while it runs
  std::shared_ptr<const KvBlock> kept_;    // rows of the scout that the link reads
  uint32_t kept_layers_ = 0;
  std::vector<LayerBand> prompt_bands_;
  PrefixCache::Hit hit_;
  uint32_t checked_rows_ = 0;  // of the block, from its first row
  int64_t admitted_ns_ = 0;
  int64_t link_began_ns_ = 0;
  int64_t scout_suspended_ns_ = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_PROMPT_JOB_H_
