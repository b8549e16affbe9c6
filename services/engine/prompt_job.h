// What link and score jobs have in common: a prompt of pieces, planned by a strategy, run in panels.
// Engine thread only from Admit on.
#ifndef EPIC_SERVICES_ENGINE_PROMPT_JOB_H_
#define EPIC_SERVICES_ENGINE_PROMPT_JOB_H_

#include <span>
#include <string>
#include <vector>

#include "services/engine/job.h"

namespace epic {

class PromptJob : public Job {
 public:
  void Admit(const JobContext& context) override;
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
  // Gives the rows to the prefix cache when they are exact ones that `full` or `prefix` computed. Call once
  // all panels ran and their logits were finite.
  void Publish(const JobContext& context);

  const std::vector<TokenId>& prompt() const { return plan_.tokens; }
  LinkStats stats_;

 private:
  void Plan(const JobContext& context);
  void ShareSegments();

  const std::string tenant_;
  const LinkStrategy strategy_;
  std::vector<PromptPiece> pieces_;
  std::vector<TokenId> appended_;
  RowPlan plan_;
  PrefixCache::Hit hit_;
  uint32_t checked_rows_ = 0;  // of the block, from its first row
  int64_t admitted_ns_ = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_PROMPT_JOB_H_
