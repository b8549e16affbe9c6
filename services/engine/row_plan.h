// Which rows of a linked prompt are computed, which are read and from where, and what usage reports of it.
// Pure: a prompt and rows in, plan out; no arithmetic on keys and values, no threads. Which rows a strategy
// wants stands in link_policy.h.
#ifndef EPIC_SERVICES_ENGINE_ROW_PLAN_H_
#define EPIC_SERVICES_ENGINE_ROW_PLAN_H_

#include <cstdint>
#include <span>
#include <vector>

#include "services/engine/engine.h"
#include "services/engine/strategy.h"

namespace epic {

// Rows of a prompt that one object covers.
struct CoveredRun {
  size_t piece = 0;
  uint32_t begin = 0;
  uint32_t rows = 0;   // at least 1
  bool exact = false;  // in place: the rows before it are, token for token, its compile prefix
};

// A prompt as strategies see it. Refers to the pieces, which outlive it.
struct PromptView {
  // REQUIRES: the pieces hold at least one token; object->layout().tokens == tokens.size() where there is
  // one.
  explicit PromptView(std::span<const PromptPiece> pieces);
  uint32_t rows() const { return static_cast<uint32_t>(tokens.size()); }
  // Ascending rows that no object covers, and the last row.
  std::vector<uint32_t> OwnRows() const;

  std::span<const PromptPiece> pieces;
  std::vector<TokenId> tokens;      // the whole prompt, N of them
  std::vector<CoveredRun> covered;  // ascending; empty pieces left out
};

// Rows read from an object or from the cached prefix. Prompt row `position` + r is row r of the source.
struct PlannedSegment {
  static constexpr size_t kCachedPrefix = ~size_t{0};
  size_t piece = 0;        // index of the piece whose object is read; kCachedPrefix: the cached prefix
  uint32_t position = 0;   // of row 0 in the prompt
  uint32_t rows = 0;       // rows of the source that stand in the prompt, from row 0
  uint32_t first_row = 0;  // rows before it are read elsewhere: computed, or in an earlier segment
  std::vector<uint32_t> replaced;  // further computed rows, ascending, all > first_row
  bool operator==(const PlannedSegment&) const = default;
  uint32_t shown() const { return rows - first_row - static_cast<uint32_t>(replaced.size()); }
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
  // Not 0: the plan before a phase that picks at most so many of the rows that are cached here.
  uint32_t picks = 0;
  // Covered rows that are computed in the end, where that is known before the run.
  std::optional<uint32_t> final_recomputed;
};

// Covered rows that are read, not computed, by piece.
std::vector<uint32_t> RowsRead(const RowPlan& plan, size_t pieces);

// True when the rows before `offset` are, token for token, the piece's compile prefix: its keys and values
// are then those of an exact prefill of this prompt. False for own text.
bool IsExactInPlace(std::span<const TokenId> prompt, size_t offset, const PromptPiece& piece);

// Every row computed.
RowPlan PlanAll(const PromptView& prompt);
// The rows of all objects read, but for those that `computed` names (ascending; others may stand among them)
// and the last row.
RowPlan PlanReading(const PromptView& prompt, std::span<const uint32_t> computed);
// The longest exactly known beginning read: `cached_rows` rows of the cached prefix, then whatever exact
// objects go on from where it ends. REQUIRES: cached_rows <= N.
RowPlan PlanPrefix(const PromptView& prompt, uint32_t cached_rows);

// The prompt of the pieces, joined.
std::vector<TokenId> JoinTokens(std::span<const PromptPiece> pieces);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_ROW_PLAN_H_
