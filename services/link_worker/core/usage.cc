#include "services/link_worker/core/usage.h"

#include <algorithm>
#include <memory>

#include "services/engine/link_policy.h"

namespace epic {

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
      if (piece.as_text && piece.kind == LinkPiece::Kind::kContext) usage.recomputed += piece.tokens;
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

std::optional<uint32_t> PlannedRecomputed(std::span<const PromptPiece> pieces, const LinkStrategy& strategy,
                                          std::vector<PieceAccount> accounts, bool objects_given) {
  const std::unique_ptr<const LinkPolicy> policy = LinkPolicy::Make(strategy);
  if (policy->reads_prefix_cache()) return std::nullopt;
  const RowPlan plan = policy->Before(PromptView(pieces), 0);
  if (plan.picks > 0) {
    // Which rows will be picked of an object is not known yet.
    const bool computes = std::any_of(accounts.begin(), accounts.end(),
                                      [](const PieceAccount& account) { return account.computed_now; });
    return computes ? std::nullopt : plan.final_recomputed;
  }
  const std::vector<uint32_t> read = RowsRead(plan, pieces.size());
  for (size_t i = 0; i < read.size(); ++i) accounts[i].read_rows = read[i];
  LinkStats planned;
  planned.prompt_tokens = static_cast<uint32_t>(plan.tokens.size());
  planned.cached_tokens = plan.cached;
  planned.recomputed_tokens = plan.recomputed;
  planned.fresh_tokens = plan.fresh;
  return AccountFor(planned, accounts, objects_given).recomputed;
}

}  // namespace epic
