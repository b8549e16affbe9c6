#include "services/engine/step_builder.h"

#include <algorithm>

namespace epic {
namespace {

// Smaller panels waste the products' efficiency.
constexpr uint32_t kMinShare = 32;
constexpr uint32_t kMixedShare = 4;

}  // namespace

std::vector<uint32_t> SharePanel(std::span<const uint32_t> remaining, uint32_t budget, size_t first) {
  const size_t count = remaining.size();
  std::vector<uint32_t> rows(count, 0);
  if (count == 0) return rows;
  const uint32_t share = std::max<uint32_t>(kMinShare, budget / static_cast<uint32_t>(count));
  for (const uint32_t limit : {share, budget}) {
    for (size_t i = 0; i < count && budget > 0; ++i) {
      const size_t job = (first + i) % count;
      const uint32_t more = std::min({remaining[job] - rows[job], limit, budget});
      rows[job] += more;
      budget -= more;
    }
  }
  return rows;
}

Step StepBuilder::Build(std::span<const std::unique_ptr<Job>> jobs) {
  Step step;
  std::vector<uint32_t> choices;
  std::vector<Job*> waiting;
  std::vector<uint32_t> remaining;
  bool is_shallow = true;
  for (const std::unique_ptr<Job>& job : jobs) {
    choices.clear();
    job->AddDecodeRows(&step.groups, &choices);
    for (const uint32_t choice : choices) {
      step.groups[step.owners.size()].kind = RowKind::kDecode;
      step.owners.push_back({.job = job.get(), .choice = choice});
    }
    if (job->panels().remaining() > 0) {
      waiting.push_back(job.get());
      remaining.push_back(job->panels().remaining());
      is_shallow = is_shallow && job->panels().is_shallow;
    }
  }
  const uint32_t budget =
      step.groups.empty() || is_shallow ? panel_tokens_ : std::max<uint32_t>(panel_tokens_ / kMixedShare, 1);
  if (waiting.empty()) return step;
  const std::vector<uint32_t> rows = SharePanel(remaining, budget, turn_++ % waiting.size());
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (rows[i] == 0) continue;
    waiting[i]->panels().Next(rows[i], &step.groups);
    for (size_t group = step.owners.size(); group < step.groups.size(); ++group) {
      const auto in_group = static_cast<uint32_t>(step.groups[group].tokens.size());
      step.owners.push_back({.job = waiting[i], .panel_rows = in_group});
    }
    step.owners.back().ends_panel = true;
  }
  return step;
}

}  // namespace epic
