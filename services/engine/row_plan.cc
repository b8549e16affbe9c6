#include "services/engine/row_plan.h"

#include <algorithm>

#include "common/base/check.h"

namespace epic {
namespace {

enum class Source : uint8_t { kFresh, kRecomputed, kCached };

// Reads rows [first, n) of piece `index`, which stands at `offset`.
void ReadPiece(size_t index, uint32_t offset, uint32_t n, uint32_t first, std::vector<Source>* source,
               RowPlan* plan) {
  if (first >= n) return;
  plan->segments.push_back({.piece = index, .position = offset, .rows = n, .first_row = first});
  std::fill_n(source->begin() + offset + first, n - first, Source::kCached);
}

// kNaive and kLegoLink: every object is read but for the rows that the strategy repairs.
void PlanReuse(std::span<const PromptPiece> pieces, uint32_t repaired, std::vector<Source>* source,
               RowPlan* plan) {
  plan->exact = true;
  uint32_t offset = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto n = static_cast<uint32_t>(pieces[i].tokens.size());
    if (pieces[i].object != nullptr && n > 0) {
      const bool exact = IsExactInPlace(plan->tokens, offset, pieces[i]);
      plan->exact = plan->exact && exact;
      ReadPiece(i, offset, n, exact ? 0 : std::min(repaired, n), source, plan);
    }
    offset += n;
  }
}

// kPrefix: the cached prefix, then whatever exact objects go on from where it ends.
void PlanPrefix(std::span<const PromptPiece> pieces, uint32_t cached_rows, std::vector<Source>* source,
                RowPlan* plan) {
  plan->exact = true;
  const auto total = static_cast<uint32_t>(plan->tokens.size());
  uint32_t known = std::min(cached_rows, total - 1);
  if (known > 0) {
    plan->segments.push_back({.piece = PlannedSegment::kCachedPrefix, .position = 0, .rows = known});
    std::fill_n(source->begin(), known, Source::kCached);
  }
  uint32_t offset = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto n = static_cast<uint32_t>(pieces[i].tokens.size());
    if (offset > known) break;
    if (offset + n > known && IsExactInPlace(plan->tokens, offset, pieces[i])) {
      const uint32_t shown = std::min(n, total - 1 - offset);
      ReadPiece(i, offset, shown, known - offset, source, plan);
      known = std::max(known, offset + shown);
    }
    offset += n;
  }
}

// The last row gives the logits: it is computed even where an object covers it.
void ComputeLastRow(std::vector<Source>* source, RowPlan* plan) {
  const auto last = static_cast<uint32_t>(plan->tokens.size() - 1);
  if ((*source)[last] != Source::kCached) return;
  (*source)[last] = Source::kRecomputed;
  PlannedSegment& segment = plan->segments.back();
  const uint32_t row = last - segment.position;
  if (row == segment.first_row) {
    plan->segments.pop_back();
  } else {
    segment.replaced.push_back(row);
  }
}

void CountRows(const std::vector<Source>& source, RowPlan* plan) {
  for (uint32_t row = 0; row < source.size(); ++row) {
    switch (source[row]) {
      case Source::kCached:
        ++plan->cached;
        continue;
      case Source::kRecomputed:
        ++plan->recomputed;
        break;
      case Source::kFresh:
        ++plan->fresh;
        break;
    }
    plan->rows.push_back(row);
  }
}

}  // namespace

bool IsExactInPlace(std::span<const TokenId> prompt, size_t offset, const PromptPiece& piece) {
  return piece.object != nullptr && piece.prefix_tokens.size() == offset &&
         std::equal(piece.prefix_tokens.begin(), piece.prefix_tokens.end(), prompt.begin());
}

std::vector<TokenId> JoinTokens(std::span<const PromptPiece> pieces) {
  std::vector<TokenId> tokens;
  for (const PromptPiece& piece : pieces) {
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
  }
  return tokens;
}

RowPlan PlanRows(std::span<const PromptPiece> pieces, const LinkStrategy& strategy,
                 uint32_t cached_prefix_rows) {
  RowPlan plan;
  plan.tokens = JoinTokens(pieces);
  EPIC_CHECK(!plan.tokens.empty() && cached_prefix_rows <= plan.tokens.size());
  std::vector<Source> source;
  source.reserve(plan.tokens.size());
  for (const PromptPiece& piece : pieces) {
    source.insert(source.end(), piece.tokens.size(),
                  piece.object == nullptr ? Source::kFresh : Source::kRecomputed);
  }
  switch (strategy.kind) {
    case StrategyKind::kFull:
      plan.exact = true;
      break;
    case StrategyKind::kPrefix:
      PlanPrefix(pieces, cached_prefix_rows, &source, &plan);
      break;
    case StrategyKind::kNaive:
      PlanReuse(pieces, 0, &source, &plan);
      break;
    case StrategyKind::kLegoLink:
      PlanReuse(pieces, strategy.k, &source, &plan);
      break;
  }
  ComputeLastRow(&source, &plan);
  CountRows(source, &plan);
  return plan;
}

}  // namespace epic
