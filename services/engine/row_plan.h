// Which rows of a linked prompt are computed, which are read and from where, and what usage reports of it.
// Pure: pieces and strategy in, plan out; no arithmetic on keys and values, no threads.
#ifndef EPIC_SERVICES_ENGINE_ROW_PLAN_H_
#define EPIC_SERVICES_ENGINE_ROW_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "services/engine/engine.h"
#include "services/engine/strategy.h"

namespace epic {

// Rows read from an object or from the cached prefix. Prompt row `position` + r is row r of the source.
struct PlannedSegment {
  static constexpr size_t kCachedPrefix = ~size_t{0};
  size_t piece = 0;        // index of the piece whose object is read; kCachedPrefix: the cached prefix
  uint32_t position = 0;   // of row 0 in the prompt
  uint32_t rows = 0;       // rows of the source that stand in the prompt, from row 0
  uint32_t first_row = 0;  // rows before it are read elsewhere: computed, or in an earlier segment
  std::vector<uint32_t> replaced;  // further computed rows, ascending, all > first_row
  bool operator==(const PlannedSegment&) const = default;
};

struct RowPlan {
  std::vector<TokenId> tokens;           // the whole prompt, N of them
  std::vector<uint32_t> rows;            // computed rows, ascending; the last is N - 1
  std::vector<PlannedSegment> segments;  // ascending by position; each shows at least one row
  uint32_t cached = 0;
  uint32_t recomputed = 0;
  uint32_t fresh = 0;  // cached + recomputed + fresh == N
  // Every row of the prompt is what an exact prefill would hold.
  bool exact = false;
};

// True when the rows before `offset` are, token for token, the piece's compile prefix: its keys and values
// are then those of an exact prefill of this prompt. False for own text.
bool IsExactInPlace(std::span<const TokenId> prompt, size_t offset, const PromptPiece& piece);

// cached_prefix_rows: leading rows that the prefix cache holds for this prompt; used by kPrefix only.
// REQUIRES: the pieces hold at least one token; object->layout().tokens == tokens.size() where there is one;
// cached_prefix_rows <= N.
RowPlan PlanRows(std::span<const PromptPiece> pieces, const LinkStrategy& strategy,
                 uint32_t cached_prefix_rows);

// The prompt of the pieces, joined.
std::vector<TokenId> JoinTokens(std::span<const PromptPiece> pieces);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_ROW_PLAN_H_
