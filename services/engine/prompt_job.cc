#include "services/engine/prompt_job.h"

#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace epic {

PromptJob::PromptJob(const JobContext& context, std::string tenant, CancelToken cancel,
                     std::vector<PromptPiece> pieces, const LinkStrategy& strategy,
                     std::span<const TokenId> appended)
    : Job(std::move(cancel), context.clock->SteadyNs()),
      tenant_(std::move(tenant)),
      strategy_(strategy),
      pieces_(std::move(pieces)),
      appended_(appended.begin(), appended.end()) {
  // The prefix cache belongs to the engine's thread; without it the plan computes at least as many rows.
  plan_ = PlanRows(pieces_, strategy_, 0);
  stats_.decide_ns = context.clock->SteadyNs() - submitted_ns_;
  bytes_ = context.shape.RowBytes() * (plan_.rows.size() + appended_.size());
  for (const PromptPiece& piece : pieces_) objects_ += piece.object != nullptr ? 1 : 0;
}

void PromptJob::Plan(const JobContext& context) {
  const int64_t begin = context.clock->SteadyNs();
  hit_ = context.prefix_cache->Find(tenant_, plan_.tokens);
  plan_ = PlanRows(pieces_, strategy_, hit_.rows);
  stats_.decide_ns += context.clock->SteadyNs() - begin;
}

void PromptJob::ShareSegments() {
  for (PlannedSegment& planned : plan_.segments) {
    SharedSegment segment;
    segment.position = planned.position;
    segment.rows = planned.rows;
    segment.first_row = planned.first_row;
    segment.replaced = std::move(planned.replaced);
    if (planned.piece == PlannedSegment::kCachedPrefix) {
      segment.block = hit_.block;
    } else {
      segment.object = pieces_[planned.piece].object;
      segment.stored_position = segment.object->layout().first_position;
    }
    panels_.shared.push_back(std::move(segment));
  }
  plan_.segments.clear();
}

void PromptJob::Admit(const JobContext& context) {
  admitted_ns_ = context.clock->SteadyNs();
  stats_.queue_ns = admitted_ns_ - submitted_ns_;
  if (strategy_.kind == StrategyKind::kPrefix && !tenant_.empty()) Plan(context);
  ShareSegments();
  const auto prompt_tokens = static_cast<uint32_t>(plan_.tokens.size());
  stats_.prompt_tokens = prompt_tokens;
  stats_.cached_tokens = plan_.cached;
  stats_.recomputed_tokens = plan_.recomputed;
  stats_.fresh_tokens = plan_.fresh;
  for (const uint32_t row : plan_.rows) panels_.tokens.push_back(plan_.tokens[row]);
  std::vector<uint32_t> positions = std::move(plan_.rows);
  for (uint32_t i = 0; i < appended_.size(); ++i) {
    panels_.tokens.push_back(appended_[i]);
    positions.push_back(prompt_tokens + i);
  }
  panels_.block = std::make_shared<KvBlock>(context.shape, std::move(positions));
  panels_.logits_rows = 1 + static_cast<uint32_t>(appended_.size());
}

bool PromptJob::CheckPanel(const JobContext& context, std::span<const float> logits) {
  const uint32_t first = checked_rows_;
  checked_rows_ = panels_.done + panels_.running;
  return CheckFinite(context.shape, *panels_.block, first, checked_rows_ - first, logits);
}

void PromptJob::MarkLinked(const JobContext& context) {
  stats_.link_ns = context.clock->SteadyNs() - admitted_ns_;
}

void PromptJob::Publish(const JobContext& context) {
  const bool computed_exactly =
      plan_.exact && (strategy_.kind == StrategyKind::kFull || strategy_.kind == StrategyKind::kPrefix);
  const uint64_t rows = plan_.tokens.size() + appended_.size();
  if (tenant_.empty() || !computed_exactly) return;
  if (!context.prefix_cache->Takes(rows * context.shape.RowBytes())) return;
  std::vector<TokenId> tokens = plan_.tokens;
  tokens.insert(tokens.end(), appended_.begin(), appended_.end());
  if (panels_.shared.empty()) {
    context.prefix_cache->Insert(tenant_, std::move(tokens), panels_.block);
    return;
  }
  std::vector<uint32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0u);
  auto whole = std::make_shared<KvBlock>(context.shape, std::move(positions));
  for (const SharedSegment& segment : panels_.shared) CopyRows(context.shape, segment, whole.get());
  CopyRows(context.shape, *panels_.block, panels_.block->capacity(), whole.get());
  context.prefix_cache->Insert(tenant_, std::move(tokens), std::move(whole));
}

void PromptJob::Release() {
  Job::Release();
  pieces_.clear();
  hit_ = {};
}

}  // namespace epic
