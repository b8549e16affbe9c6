// Which rows the next step runs: the decode rows of every job, then panels of prompt rows shared out fairly,
// short ones whole. Rows that wait for a layer are in no step. Decides nothing about memory or order of
// admission (engine.cc does). Engine thread only; keeps no job from step to step.
#ifndef EPIC_SERVICES_ENGINE_STEP_BUILDER_H_
#define EPIC_SERVICES_ENGINE_STEP_BUILDER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "services/engine/forward.h"
#include "services/engine/job.h"

namespace epic {

// Whose a group is.
struct GroupOwner {
  Job* job = nullptr;
  uint32_t choice = 0;      // of a decode row
  uint32_t panel_rows = 0;  // 0: a decode row
  bool ends_panel = false;  // the last group of this job's panel
  bool suspended = false;   // it has left the step, for want of a layer
};

struct Step {
  std::vector<RowGroup> groups;
  std::vector<GroupOwner> owners;  // one for each group
};

struct PanelShares {
  std::vector<uint32_t> rows;  // of each job; they sum to at most the budget
  size_t next = 0;             // the job that is first the next time: in turn, the first one cut short here
};

// Splits `budget` rows over jobs with `remaining` rows each, beginning with job `first`: all rows of a short
// one, so that a step computes whole chunks where they are short, and equal shares of at least 32 rows of the
// others; then what is left in the same order. REQUIRES: first < remaining.size(), or no jobs.
PanelShares SharePanel(std::span<const uint32_t> remaining, uint32_t budget, size_t first);

class StepBuilder {
 public:
  // With decode rows in a step its panel is a quarter, so that running answers do not stutter; not when all
  // its panel rows leave after a few layers.
  explicit StepBuilder(uint32_t panel_tokens) : panel_tokens_(panel_tokens) {}
  Step Build(std::span<const std::unique_ptr<Job>> jobs);

 private:
  const uint32_t panel_tokens_;
  size_t first_ = 0;  // of the jobs with panel rows, whose turn it is to be first
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_STEP_BUILDER_H_
