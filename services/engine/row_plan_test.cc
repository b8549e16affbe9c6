#include "services/engine/row_plan.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/engine/link_policy.h"
#include "services/engine/testing/plain_object.h"

namespace epic {
namespace {

using Rows = std::vector<uint32_t>;
constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr LinkStrategy kPrefix{StrategyKind::kPrefix, 0};
constexpr LinkStrategy kNaive{StrategyKind::kNaive, 0};
constexpr LinkStrategy LegoLink(uint32_t k) { return {StrategyKind::kLegoLink, k}; }

std::vector<TokenId> Ids(TokenId first, size_t count) {
  std::vector<TokenId> ids(count);
  for (size_t i = 0; i < count; ++i) ids[i] = first + static_cast<TokenId>(i);
  return ids;
}

PromptPiece Text(std::vector<TokenId> tokens) { return {.tokens = std::move(tokens)}; }

PromptPiece Chunk(std::vector<TokenId> tokens, std::vector<TokenId> prefix = {}) {
  KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 2};
  layout.tokens = static_cast<uint32_t>(tokens.size());
  layout.first_position = static_cast<uint32_t>(prefix.size());
  return {.tokens = std::move(tokens),
          .object = std::make_shared<testing::PlainObject>(layout),
          .prefix_tokens = std::move(prefix)};
}

Rows Range(uint32_t begin, uint32_t end) {
  Rows rows;
  for (uint32_t r = begin; r < end; ++r) rows.push_back(r);
  return rows;
}

Rows Join(std::initializer_list<Rows> parts) {
  Rows rows;
  for (const Rows& part : parts) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

void ExpectUsage(const RowPlan& plan, uint32_t cached, uint32_t recomputed, uint32_t fresh) {
  EXPECT_EQ(plan.cached, cached);
  EXPECT_EQ(plan.recomputed, recomputed);
  EXPECT_EQ(plan.fresh, fresh);
  EXPECT_EQ(plan.cached + plan.recomputed + plan.fresh, plan.tokens.size());
}

TEST(RowPlanTest, FullComputesEveryRowAndCachesNothing) {
  const std::vector<PromptPiece> pieces = {Chunk(Ids(1, 10)), Chunk(Ids(50, 20)), Text(Ids(90, 5))};
  const RowPlan plan = PlanRows(pieces, kFull, 35);
  EXPECT_EQ(plan.rows, Range(0, 35));
  EXPECT_TRUE(plan.segments.empty());
  EXPECT_TRUE(plan.exact);
  ExpectUsage(plan, 0, 30, 5);
}

TEST(RowPlanTest, LegoLinkRepairsTheFirstRowsOfChunksThatAreNotExactInPlace) {
  const std::vector<PromptPiece> pieces = {Chunk(Ids(1, 10)), Chunk(Ids(50, 20)), Text(Ids(90, 5)),
                                           Chunk(Ids(100, 30)), Text(Ids(200, 3))};
  const RowPlan plan = PlanRows(pieces, LegoLink(16), 0);
  EXPECT_EQ(plan.rows, Join({Range(10, 26), Range(30, 51), Range(65, 68)}));
  const std::vector<PlannedSegment> expected = {{0, 0, 10, 0, {}}, {1, 10, 20, 16, {}}, {3, 35, 30, 16, {}}};
  EXPECT_EQ(plan.segments, expected);
  EXPECT_FALSE(plan.exact);
  ExpectUsage(plan, 10 + 4 + 14, 32, 8);
}

TEST(RowPlanTest, TheFirstChunkIsRepairedWhenOwnTextStandsBeforeIt) {
  const std::vector<PromptPiece> pieces = {Text(Ids(7, 2)), Chunk(Ids(50, 20)), Text(Ids(90, 1))};
  EXPECT_EQ(PlanRows(pieces, LegoLink(4), 0).rows, Join({{0, 1}, Range(2, 6), {22}}));
}

TEST(RowPlanTest, ASystemObjectIsExactDirectlyBehindThatSameHeadOnly) {
  const auto head = Ids(1, 8);
  const std::vector<PromptPiece> behind = {Chunk(head), Chunk(Ids(50, 20), head), Text(Ids(90, 1))};
  EXPECT_EQ(PlanRows(behind, LegoLink(4), 0).rows, Rows{28});
  EXPECT_TRUE(PlanRows(behind, LegoLink(4), 0).exact);
  // The head as own text serves as well; its rows are computed, the object's are not.
  const std::vector<PromptPiece> text = {Text(head), Chunk(Ids(50, 20), head), Text(Ids(90, 1))};
  EXPECT_EQ(PlanRows(text, LegoLink(4), 0).rows, Join({Range(0, 8), {28}}));
  auto other = head;
  other[3] = 999;
  const std::vector<PromptPiece> wrong = {Chunk(other), Chunk(Ids(50, 20), head), Text(Ids(90, 1))};
  EXPECT_EQ(PlanRows(wrong, LegoLink(4), 0).rows, Join({Range(8, 12), {28}}));
  const std::vector<PromptPiece> later = {Chunk(head), Text({5}), Chunk(Ids(50, 20), head), Text({6})};
  EXPECT_EQ(PlanRows(later, LegoLink(4), 0).rows, Join({{8}, Range(9, 13), {29}}));
  // A prefixed object at offset 0 is not exact.
  const std::vector<PromptPiece> front = {Chunk(Ids(50, 20), head), Text({6})};
  EXPECT_EQ(PlanRows(front, LegoLink(4), 0).rows, Join({Range(0, 4), {20}}));
}

TEST(RowPlanTest, TheLastRowIsComputedEvenWhereItIsCovered) {
  const std::vector<PromptPiece> pieces = {Chunk(Ids(1, 10)), Chunk(Ids(50, 20))};
  const RowPlan plan = PlanRows(pieces, LegoLink(4), 0);
  EXPECT_EQ(plan.rows, Join({Range(10, 14), {29}}));
  EXPECT_EQ(plan.segments[1].replaced, Rows{19});
  ExpectUsage(plan, 25, 5, 0);
  const RowPlan naive = PlanRows(std::vector<PromptPiece>{Chunk(Ids(1, 10))}, kNaive, 0);
  EXPECT_EQ(naive.rows, Rows{9});
  ExpectUsage(naive, 9, 1, 0);
}

TEST(RowPlanTest, AChunkShorterThanKIsRecomputedWhole) {
  const std::vector<PromptPiece> pieces = {Chunk(Ids(1, 10)), Chunk(Ids(50, 5)), Chunk(Ids(60, 1)),
                                           Text({9})};
  const RowPlan plan = PlanRows(pieces, LegoLink(16), 0);
  EXPECT_EQ(plan.rows, Range(10, 17));
  EXPECT_EQ(plan.segments.size(), 1u);
  ExpectUsage(plan, 10, 6, 1);
  // All but the last row repaired, and that one computed for the logits: nothing is left to read.
  const RowPlan edge = PlanRows(std::vector<PromptPiece>{Text({3}), Chunk(Ids(50, 5))}, LegoLink(4), 0);
  EXPECT_EQ(edge.rows, Range(0, 6));
  EXPECT_TRUE(edge.segments.empty());
}

TEST(RowPlanTest, APromptOfOneCoveredTokenComputesIt) {
  for (const LinkStrategy& strategy : {kFull, kPrefix, kNaive, LegoLink(16)}) {
    const RowPlan plan = PlanRows(std::vector<PromptPiece>{Chunk({42})}, strategy, 1);
    EXPECT_EQ(plan.rows, Rows{0}) << strategy.Name();
    EXPECT_TRUE(plan.segments.empty());
    ExpectUsage(plan, 0, 1, 0);
  }
}

TEST(RowPlanTest, TheSameObjectTwiceIsReadTwiceAtItsOwnPositions) {
  const PromptPiece chunk = Chunk(Ids(50, 20));
  const RowPlan plan = PlanRows(std::vector<PromptPiece>{chunk, chunk, Text({9})}, LegoLink(16), 0);
  EXPECT_EQ(plan.rows, Join({Range(20, 36), {40}}));
  const std::vector<PlannedSegment> expected = {{0, 0, 20, 0, {}}, {1, 20, 20, 16, {}}};
  EXPECT_EQ(plan.segments, expected);
}

TEST(RowPlanTest, EmptyPiecesChangeNothing) {
  const std::vector<PromptPiece> pieces = {Text({}), Chunk(Ids(1, 3)), Text({}), Text({9})};
  EXPECT_EQ(PlanRows(pieces, LegoLink(16), 0).rows, Rows{3});
}

TEST(RowPlanTest, PrefixReadsTheLongestExactBeginning) {
  const auto head = Ids(1, 8);
  const std::vector<PromptPiece> pieces = {Chunk(head), Chunk(Ids(50, 20), head), Chunk(Ids(90, 10)),
                                           Text({7, 7})};
  const RowPlan chain = PlanRows(pieces, kPrefix, 0);
  EXPECT_EQ(chain.rows, Range(28, 40));
  EXPECT_TRUE(chain.exact);
  ExpectUsage(chain, 28, 10, 2);
  // The cached prefix ends within the second chunk, whose object goes on.
  const RowPlan both = PlanRows(pieces, kPrefix, 12);
  EXPECT_EQ(both.rows, Range(28, 40));
  const std::vector<PlannedSegment> expected = {{PlannedSegment::kCachedPrefix, 0, 12, 0, {}},
                                                {1, 8, 20, 4, {}}};
  EXPECT_EQ(both.segments, expected);
  // It covers own text as well, and never the last row.
  const RowPlan whole = PlanRows(pieces, kPrefix, 40);
  EXPECT_EQ(whole.rows, Rows{39});
  ExpectUsage(whole, 39, 0, 1);
}

TEST(RowPlanTest, PrefixOverAnExactObjectAtTheEndLeavesTheLastRow) {
  const RowPlan plan = PlanRows(std::vector<PromptPiece>{Chunk(Ids(1, 8))}, kPrefix, 0);
  EXPECT_EQ(plan.rows, Rows{7});
  const std::vector<PlannedSegment> expected = {{0, 0, 7, 0, {}}};
  EXPECT_EQ(plan.segments, expected);
}

// --- properties over random prompts, against the definition row by row

struct RandomPrompt {
  std::vector<PromptPiece> pieces;
  LinkStrategy strategy;
  uint32_t cached_rows = 0;
};

RandomPrompt MakePrompt(Rng& rng) {
  RandomPrompt prompt;
  std::vector<TokenId> so_far;
  const size_t count = 1 + rng.Below(7);
  for (size_t i = 0; i < count; ++i) {
    const auto tokens = Ids(static_cast<TokenId>(rng.Below(3)), rng.Below(40));
    switch (rng.Below(5)) {
      case 0:
        prompt.pieces.push_back(Text(tokens));
        break;
      case 1:
        prompt.pieces.push_back(Chunk(tokens, so_far));
        break;
      case 2:
        prompt.pieces.push_back(Chunk(tokens, Ids(0, rng.Below(5))));
        break;
      default:
        prompt.pieces.push_back(Chunk(tokens));
    }
    so_far.insert(so_far.end(), tokens.begin(), tokens.end());
  }
  if (so_far.empty()) {
    prompt.pieces.push_back(Text({1}));
    so_far.push_back(1);
  }
  const uint32_t ks[] = {0, 1, 2, 16, 64};
  const LinkStrategy strategies[] = {kFull, kPrefix, kNaive, LegoLink(ks[rng.Below(5)])};
  prompt.strategy = strategies[rng.Below(4)];
  prompt.cached_rows = static_cast<uint32_t>(rng.Below(so_far.size() + 1));
  return prompt;
}

// Whether the definition of the strategy computes a row, told row by row.
bool Computes(const RandomPrompt& prompt, const std::vector<TokenId>& tokens, uint32_t row) {
  if (row + 1 == tokens.size() || prompt.strategy.kind == StrategyKind::kFull) return true;
  const auto exact_at = [&](uint32_t offset, const PromptPiece& piece) {
    return std::vector<TokenId>(tokens.begin(), tokens.begin() + offset) == piece.prefix_tokens;
  };
  if (prompt.strategy.kind == StrategyKind::kPrefix) {
    // Known as long as every row up to this one is in the cache or in an exact object.
    for (uint32_t r = 0; r <= row; ++r) {
      bool known = r < prompt.cached_rows;
      uint32_t offset = 0;
      for (const PromptPiece& piece : prompt.pieces) {
        const bool inside = r >= offset && r < offset + piece.tokens.size();
        if (inside && piece.object != nullptr && exact_at(offset, piece)) known = true;
        offset += static_cast<uint32_t>(piece.tokens.size());
      }
      if (!known) return true;
    }
    return false;
  }
  const uint32_t k = prompt.strategy.kind == StrategyKind::kNaive ? 0 : prompt.strategy.k;
  uint32_t offset = 0;
  for (const PromptPiece& piece : prompt.pieces) {
    if (row < offset + piece.tokens.size()) {
      if (piece.object == nullptr) return true;
      return !exact_at(offset, piece) && row - offset < k;
    }
    offset += static_cast<uint32_t>(piece.tokens.size());
  }
  return true;
}

TEST(RowPlanTest, RandomPromptsFollowTheDefinitionRowByRow) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  for (int round = 0; round < 2000; ++round) {
    const RandomPrompt prompt = MakePrompt(rng);
    const RowPlan plan = PlanRows(prompt.pieces, prompt.strategy, prompt.cached_rows);
    const auto n = static_cast<uint32_t>(plan.tokens.size());
    Rows expected;
    for (uint32_t row = 0; row < n; ++row) {
      if (Computes(prompt, plan.tokens, row)) expected.push_back(row);
    }
    ASSERT_EQ(plan.rows, expected) << "round " << round << " " << prompt.strategy.Name();
    // Every row is computed or read from exactly one segment.
    std::map<uint32_t, int> sources;
    for (const uint32_t row : plan.rows) ++sources[row];
    uint32_t last_position = 0;
    for (const PlannedSegment& segment : plan.segments) {
      ASSERT_GE(segment.position, last_position);
      last_position = segment.position;
      ASSERT_LT(segment.first_row, segment.rows);
      for (uint32_t r = segment.first_row; r < segment.rows; ++r) {
        if (!std::binary_search(segment.replaced.begin(), segment.replaced.end(), r)) {
          ++sources[segment.position + r];
        }
      }
    }
    ASSERT_EQ(sources.size(), n);
    for (const auto& [row, count] : sources) ASSERT_EQ(count, 1) << "row " << row << " round " << round;
    ASSERT_EQ(plan.cached + plan.recomputed + plan.fresh, n);
    ASSERT_EQ(plan.recomputed + plan.fresh, plan.rows.size());
  }
}

}  // namespace
}  // namespace epic
