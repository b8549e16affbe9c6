#include "services/engine/step_builder.h"

#include <algorithm>

namespace epic {
namespace {

// Smaller panels waste the products' efficiency.
constexpr uint32_t kMinShare = 32;
// A job with no more rows than that is not cut: its attention is packed once, and it ends a step sooner.
constexpr uint32_t kShortRows = 128;
constexpr uint32_t kMixedShare = 4;

// Where job `next` stands once the jobs that have all their rows now wait no more.
size_t PlaceAfter(std::span<const uint32_t> remaining, const PanelShares& shares) {
  size_t place = shares.next;
  for (size_t i = 0; i < shares.next; ++i) place -= shares.rows[i] == remaining[i] ? 1 : 0;
  return place;
}

void AddPanel(Job* job, uint32_t rows, Step* step) {
  job->panels().Next(rows, &step->groups);
  for (size_t group = step->owners.size(); group < step->groups.size(); ++group) {
    const auto in_group = static_cast<uint32_t>(step->groups[group].tokens.size());
    step->owners.push_back({.job = job, .panel_rows = in_group});
  }
  step->owners.back().ends_panel = true;
}

}  // namespace

PanelShares SharePanel(std::span<const uint32_t> remaining, uint32_t budget, size_t first) {
  const size_t count = remaining.size();
  PanelShares shares{.rows = std::vector<uint32_t>(count, 0)};
  if (count == 0) return shares;
  const uint32_t most_uncut = std::min(kShortRows, budget);
  const uint32_t share = std::max<uint32_t>(kMinShare, budget / static_cast<uint32_t>(count));
  shares.next = (first + 1) % count;
  for (size_t i = 0; i < count; ++i) {
    const size_t job = (first + i) % count;
    const uint32_t wanted = remaining[job] <= most_uncut ? remaining[job] : std::min(remaining[job], share);
    shares.rows[job] = std::min(wanted, budget);
    budget -= shares.rows[job];
    if (shares.rows[job] == wanted) continue;
    shares.next = job;
    break;
  }
  for (size_t i = 0; i < count && budget > 0; ++i) {
    const size_t job = (first + i) % count;
    const uint32_t more = std::min(remaining[job] - shares.rows[job], budget);
    shares.rows[job] += more;
    budget -= more;
  }
  return shares;
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
    if (const uint32_t rows = job->panels().Runnable(); rows > 0) {
      waiting.push_back(job.get());
      remaining.push_back(rows);
      is_shallow = is_shallow && job->panels().is_shallow;
    }
  }
  const uint32_t budget =
      step.groups.empty() || is_shallow ? panel_tokens_ : std::max<uint32_t>(panel_tokens_ / kMixedShare, 1);
  if (waiting.empty()) return step;
  const PanelShares shares = SharePanel(remaining, budget, first_ < waiting.size() ? first_ : 0);
  first_ = PlaceAfter(remaining, shares);
  for (const bool prompt : {false, true}) {
    for (size_t i = 0; i < waiting.size(); ++i) {
      if ((waiting[i]->panels().kind == RowKind::kPrompt) != prompt || shares.rows[i] == 0) continue;
      AddPanel(waiting[i], shares.rows[i], &step);
    }
  }
  return step;
}

}  // namespace epic
