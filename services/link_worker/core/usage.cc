#include "services/link_worker/core/usage.h"

#include <algorithm>

#include "services/engine/row_plan.h"

namespace epic {

std::vector<uint32_t> ReadRows(std::span<const PromptPiece> pieces, const LinkStrategy& strategy) {
  std::vector<uint32_t> rows(pieces.size(), 0);
  for (const PlannedSegment& segment : PlanRows(pieces, strategy, 0).segments) {
    if (segment.piece == PlannedSegment::kCachedPrefix) continue;
    rows[segment.piece] += segment.rows - segment.first_row - static_cast<uint32_t>(segment.replaced.size());
  }
  return rows;
}

PromptUsage AccountFor(const LinkStats& stats, std::span<const PieceAccount> pieces, bool objects_given) {
  PromptUsage usage{.prompt = stats.prompt_tokens,
                    .cached = std::min(stats.cached_tokens, stats.prompt_tokens),
                    .recomputed = stats.recomputed_tokens,
                    .fresh = 0};
  if (!objects_given) {
    // Only a beginning of the prompt can have been read.
    usage.recomputed = 0;
    uint32_t offset = 0;
    for (const PieceAccount& piece : pieces) {
      const uint32_t end = offset + piece.tokens;
      if (piece.kind == LinkPiece::Kind::kContext && end > usage.cached) {
        usage.recomputed += end - std::max(offset, usage.cached);
      }
      offset = end;
    }
  } else {
    for (const PieceAccount& piece : pieces) {
      if (!piece.computed_now) continue;
      const uint32_t rows = std::min(piece.read_rows, usage.cached);
      usage.cached -= rows;
      if (piece.kind == LinkPiece::Kind::kContext) usage.recomputed += rows;
    }
  }
  usage.recomputed = std::min(usage.recomputed, usage.prompt - usage.cached);
  usage.fresh = usage.prompt - usage.cached - usage.recomputed;
  return usage;
}

}  // namespace epic
