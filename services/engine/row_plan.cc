#include "services/engine/row_plan.h"

#include <algorithm>

#include "common/base/check.h"

namespace epic {
namespace {

enum class Source : uint8_t { kFresh, kRecomputed, kCached };

// What each row is when nothing is read.
std::vector<Source> AllComputed(const PromptView& prompt) {
  std::vector<Source> source(prompt.tokens.size(), Source::kFresh);
  for (const CoveredRun& run : prompt.covered) {
    std::fill_n(source.begin() + run.begin, run.rows, Source::kRecomputed);
  }
  return source;
}

// Reads the rows of `run` that `source` has as cached.
void ReadRun(const CoveredRun& run, const std::vector<Source>& source, RowPlan* plan) {
  const auto is_read = [&](uint32_t row) { return source[run.begin + row] == Source::kCached; };
  PlannedSegment segment{.piece = run.piece, .position = run.begin, .rows = run.rows};
  while (segment.first_row < run.rows && !is_read(segment.first_row)) ++segment.first_row;
  if (segment.first_row == run.rows) return;
  for (uint32_t row = segment.first_row; row < run.rows; ++row) {
    if (!is_read(row)) segment.replaced.push_back(row);
  }
  plan->segments.push_back(std::move(segment));
}

RowPlan Finish(const PromptView& prompt, const std::vector<Source>& source, RowPlan plan) {
  plan.tokens = prompt.tokens;
  for (uint32_t row = 0; row < source.size(); ++row) {
    switch (source[row]) {
      case Source::kCached:
        ++plan.cached;
        continue;
      case Source::kRecomputed:
        ++plan.recomputed;
        break;
      case Source::kFresh:
        ++plan.fresh;
        break;
    }
    plan.rows.push_back(row);
  }
  plan.final_recomputed = plan.recomputed;
  return plan;
}

}  // namespace

PromptView::PromptView(std::span<const PromptPiece> the_pieces)
    : pieces(the_pieces), tokens(JoinTokens(the_pieces)) {
  EPIC_CHECK(!tokens.empty());
  uint32_t offset = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto n = static_cast<uint32_t>(pieces[i].tokens.size());
    if (pieces[i].object != nullptr && n > 0) {
      covered.push_back(
          {.piece = i, .begin = offset, .rows = n, .exact = IsExactInPlace(tokens, offset, pieces[i])});
    }
    offset += n;
  }
}

std::vector<uint32_t> PromptView::OwnRows() const {
  std::vector<uint32_t> own;
  uint32_t row = 0;
  for (const CoveredRun& run : covered) {
    for (; row < run.begin; ++row) own.push_back(row);
    row = run.begin + run.rows;
  }
  for (; row < rows(); ++row) own.push_back(row);
  if (own.empty() || own.back() + 1 != rows()) own.push_back(rows() - 1);
  return own;
}

std::vector<uint32_t> RowsRead(const RowPlan& plan, size_t pieces) {
  std::vector<uint32_t> rows(pieces, 0);
  for (const PlannedSegment& segment : plan.segments) {
    if (segment.piece != PlannedSegment::kCachedPrefix) rows[segment.piece] += segment.shown();
  }
  return rows;
}

bool IsExactInPlace(std::span<const TokenId> prompt, size_t offset, const PromptPiece& piece) {
  return piece.object != nullptr && piece.prefix_tokens.size() == offset &&
         std::equal(piece.prefix_tokens.begin(), piece.prefix_tokens.end(), prompt.begin());
}

RowPlan PlanAll(const PromptView& prompt) { return Finish(prompt, AllComputed(prompt), {.exact = true}); }

RowPlan PlanReading(const PromptView& prompt, std::span<const uint32_t> computed) {
  std::vector<Source> source = AllComputed(prompt);
  RowPlan plan{.exact = true};
  for (const CoveredRun& run : prompt.covered) {
    std::fill_n(source.begin() + run.begin, run.rows, Source::kCached);
    plan.exact = plan.exact && run.exact;
  }
  for (const uint32_t row : computed) {
    if (source[row] == Source::kCached) source[row] = Source::kRecomputed;
  }
  // The last row gives the logits: it is computed even where an object covers it.
  if (source.back() == Source::kCached) source.back() = Source::kRecomputed;
  for (const CoveredRun& run : prompt.covered) ReadRun(run, source, &plan);
  return Finish(prompt, source, std::move(plan));
}

RowPlan PlanPrefix(const PromptView& prompt, uint32_t cached_rows) {
  const uint32_t total = prompt.rows();
  EPIC_CHECK(cached_rows <= total);
  std::vector<Source> source = AllComputed(prompt);
  RowPlan plan{.exact = true};
  uint32_t known = std::min(cached_rows, total - 1);
  if (known > 0) plan.segments.push_back({.piece = PlannedSegment::kCachedPrefix, .rows = known});
  for (const CoveredRun& run : prompt.covered) {
    const uint32_t end = std::min(run.begin + run.rows, total - 1);
    if (run.begin > known) break;
    if (end <= known || !run.exact) continue;
    plan.segments.push_back(
        {.piece = run.piece, .position = run.begin, .rows = end - run.begin, .first_row = known - run.begin});
    known = end;
  }
  std::fill_n(source.begin(), known, Source::kCached);
  return Finish(prompt, source, std::move(plan));
}

std::vector<TokenId> JoinTokens(std::span<const PromptPiece> pieces) {
  std::vector<TokenId> tokens;
  for (const PromptPiece& piece : pieces) {
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
  }
  return tokens;
}

}  // namespace epic
