#include "services/engine/link_policy.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/engine/testing/plain_object.h"

namespace epic {
namespace {

using Rows = std::vector<uint32_t>;
using Measure = ScoutPhase::Measure;

LinkStrategy CacheBlend(uint32_t ratio_ppm, BlendPick pick = BlendPick::kValues) {
  LinkStrategy strategy{.kind = StrategyKind::kCacheBlend};
  strategy.ratio_ppm = ratio_ppm;
  strategy.pick = pick;
  return strategy;
}
LinkStrategy QueryGuided(uint32_t budget, const ProbeOptions& probe = {}) {
  LinkStrategy strategy{.kind = StrategyKind::kQueryGuided};
  strategy.budget = budget;
  strategy.probe = probe;
  return strategy;
}

PromptPiece Piece(uint32_t n, bool covered, TokenId first) {
  PromptPiece piece;
  for (uint32_t i = 0; i < n; ++i) piece.tokens.push_back(first + i);
  if (!covered) return piece;
  KvLayout layout{.layers = 1, .kv_heads = 1, .head_dim = 2};
  layout.tokens = n;
  piece.object = std::make_shared<testing::PlainObject>(layout);
  return piece;
}

Rows Range(uint32_t begin, uint32_t end) {
  Rows rows(end - begin);
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

// A head in place of 10 rows, own text [10, 14), chunks [14, 34) and [36, 40) with text between, a question.
std::vector<PromptPiece> Pieces() {
  return {Piece(10, true, 0),   Piece(4, false, 100), Piece(20, true, 200),
          Piece(2, false, 300), Piece(4, true, 400),  Piece(5, false, 500)};
}

TEST(LinkPolicyTest, ServicesLearnFromAPolicyWhatAStrategyReads) {
  const struct {
    LinkStrategy strategy;
    bool reads_objects, reads_prefix_cache, publishes, refuses_plain_objects;
  } cases[] = {
      {{StrategyKind::kFull, 0}, false, false, true, false},
      {{StrategyKind::kPrefix, 0}, false, true, true, false},
      {{StrategyKind::kNaive, 0}, true, false, false, false},
      {{StrategyKind::kLegoLink, 16}, true, false, false, false},
      {{StrategyKind::kLegoLink, 0, CompilePrefixKind::kBos4}, true, false, false, true},
      {CacheBlend(150'000), true, false, false, false},
      {QueryGuided(16), true, false, false, false},
  };
  for (const auto& c : cases) {
    const auto policy = LinkPolicy::Make(c.strategy);
    EXPECT_EQ(policy->reads_objects(), c.reads_objects) << c.strategy.Name();
    EXPECT_EQ(policy->reads_prefix_cache(), c.reads_prefix_cache) << c.strategy.Name();
    EXPECT_EQ(policy->publishes(), c.publishes) << c.strategy.Name();
    EXPECT_EQ(policy->refuses_plain_objects(), c.refuses_plain_objects) << c.strategy.Name();
  }
}

TEST(LinkPolicyTest, StaticStrategiesHaveNoPhaseBeforeTheLink) {
  const auto pieces = Pieces();
  for (const LinkStrategy& strategy : {LinkStrategy{StrategyKind::kFull, 0},
                                       {StrategyKind::kPrefix, 0},
                                       {StrategyKind::kNaive, 0},
                                       {StrategyKind::kLegoLink, 3}}) {
    const RowPlan plan = PlanRows(pieces, strategy, 0);
    EXPECT_EQ(plan.picks, 0u);
    EXPECT_EQ(plan.final_recomputed, plan.recomputed);
  }
}

TEST(LinkPolicyTest, CacheBlendRunsAllRowsThroughLayerZeroAndKeepsThem) {
  const auto pieces = Pieces();
  const PromptView prompt(pieces);
  const auto policy = LinkPolicy::Make(CacheBlend(150'000));
  const auto scout = policy->Scout(prompt, 30);
  ASSERT_TRUE(scout.has_value());
  EXPECT_EQ(scout->rows, Range(0, 45));
  EXPECT_EQ(scout->last_layer, 1u);
  EXPECT_TRUE(scout->keeps);
  EXPECT_EQ(scout->measure, Measure::kValueDistance);
  EXPECT_EQ(LinkPolicy::Make(CacheBlend(1, BlendPick::kAttention))->Scout(prompt, 2)->measure,
            Measure::kAttentionChange);
  EXPECT_EQ(policy->Scout(prompt, 1)->last_layer, 0u);
}

TEST(LinkPolicyTest, CacheBlendPicksTheFloorOfItsShareOfRowsInChunksThatAreNotExactInPlace) {
  const auto pieces = Pieces();
  const PromptView prompt(pieces);
  std::vector<double> scores(45);
  for (uint32_t row = 0; row < 45; ++row) scores[row] = row % 7 + (row < 10 ? 100 : 0);
  // 24 rows of two chunks. Rows of the head have the highest scores and are no candidates; nor is own text.
  const auto pick = [&](uint32_t ppm) { return LinkPolicy::Make(CacheBlend(ppm))->Pick(prompt, scores); };
  EXPECT_EQ(pick(0), Rows{});
  EXPECT_EQ(pick(41'666), Rows{});
  EXPECT_EQ(pick(41'667), Rows{20});
  EXPECT_EQ(pick(125'000), (Rows{19, 20, 27}));
  EXPECT_EQ(pick(1'000'000).size(), 24u);
  // Whole numbers: 0.29 of 100 rows is 29, though 0.29 * 100 is 28.999… in binary.
  const std::vector<PromptPiece> hundred = {Piece(1, false, 9), Piece(100, true, 0), Piece(1, false, 8)};
  const PromptView view(hundred);
  EXPECT_EQ(LinkPolicy::Make(CacheBlend(290'000))->Pick(view, std::vector<double>(102, 0.0)), Range(1, 30));
  EXPECT_EQ(PlanRows(hundred, CacheBlend(290'000), 0).final_recomputed, 29u);
}

TEST(LinkPolicyTest, CacheBlendOfThePaperCountsOwnTextAndHasTheHeadCompete) {
  const auto pieces = Pieces();
  const PromptView prompt(pieces);
  std::vector<double> scores(45, 0.0);
  scores[3] = 5;
  scores[15] = 4;
  scores[37] = 3;
  const auto pick = [&](uint32_t ppm) {
    return LinkPolicy::Make(CacheBlend(ppm, BlendPick::kPaper))->Pick(prompt, scores);
  };
  // int(44 * r) places; the 10 rows of own text before the last one take theirs first.
  EXPECT_EQ(pick(100'000), Rows{});
  EXPECT_EQ(pick(240'000), Rows{});
  EXPECT_EQ(pick(250'000), Rows{3});
  EXPECT_EQ(pick(300'000), (Rows{3, 15, 37}));
  EXPECT_EQ(pick(1'000'000).size(), 34u);
  // Everything covered, as the paper has it: int((N - 1) * r) rows, and the last one.
  const std::vector<PromptPiece> covered = {Piece(10, true, 0), Piece(11, true, 50)};
  const PromptView all(covered);
  const auto policy = LinkPolicy::Make(CacheBlend(250'000, BlendPick::kPaper));
  const Rows rows = policy->Pick(all, std::vector<double>(21, 1.0));
  EXPECT_EQ(rows, Range(0, 5));
  EXPECT_EQ(PlanReading(all, rows).recomputed, 6u);
}

TEST(LinkPolicyTest, QueryGuidedProbesWithOwnTextAndTheLastRow) {
  const auto pieces = Pieces();
  const PromptView prompt(pieces);
  Rows own = Range(10, 14);
  for (const uint32_t row : {34u, 35u, 40u, 41u, 42u, 43u, 44u}) own.push_back(row);
  const auto scout = LinkPolicy::Make(QueryGuided(16))->Scout(prompt, 30);
  ASSERT_TRUE(scout.has_value());
  EXPECT_EQ(scout->rows, own);
  EXPECT_EQ(scout->first_measured, 10u);
  EXPECT_EQ(scout->last_layer, 26u);
  EXPECT_EQ(scout->measured_step, 2u);
  EXPECT_EQ(scout->first_reading, 10u);
  EXPECT_TRUE(scout->quantized);
  EXPECT_EQ(scout->first_asking, 0u);
  EXPECT_FALSE(scout->keeps);
  const auto some = LinkPolicy::Make(QueryGuided(16, {.first_layer = 3,
                                                      .last_layer = 5,
                                                      .layer_step = 3,
                                                      .starts_blind = false,
                                                      .quantized = false,
                                                      .query_rows = 6,
                                                      .asking_rows = 2}))
                        ->Scout(prompt, 30);
  EXPECT_EQ(some->measured_step, 3u);
  EXPECT_EQ(some->first_reading, 0u);
  EXPECT_FALSE(some->quantized);
  EXPECT_EQ(some->rows, Rows(own.end() - 6, own.end()));
  EXPECT_EQ(some->first_measured, 3u);
  EXPECT_EQ(some->last_layer, 5u);
  EXPECT_EQ(some->first_asking, 43u);
  // Nothing but covered rows: the last one asks.
  const std::vector<PromptPiece> covered = {Piece(10, true, 0), Piece(11, true, 50)};
  EXPECT_EQ(LinkPolicy::Make(QueryGuided(4))->Scout(PromptView(covered), 4)->rows, Rows{20});
}

TEST(LinkPolicyTest, TheProbesLayersFollowTheModel) {
  for (const auto& [layers, first, last] : {std::tuple{1u, 0u, 0u},
                                            {2u, 0u, 1u},
                                            {3u, 1u, 2u},
                                            {4u, 1u, 3u},
                                            {8u, 2u, 7u},
                                            {24u, 8u, 21u},
                                            {30u, 10u, 26u}}) {
    const LayerRange range = ProbeLayers({}, layers);
    EXPECT_EQ(range.first, first) << layers;
    EXPECT_EQ(range.last, last) << layers;
    EXPECT_LT(range.last, layers);
  }
}

TEST(LinkPolicyTest, QueryGuidedPicksTheMostReadRowsOfAllChunks) {
  const auto pieces = Pieces();
  const PromptView prompt(pieces);
  std::vector<double> scores(45, 0.0);
  scores[2] = 99;   // in place
  scores[11] = 99;  // own text
  scores[20] = 5;
  scores[33] = 4;
  scores[39] = 1;
  const auto pick = [&](uint32_t budget, const ProbeOptions& probe) {
    return LinkPolicy::Make(QueryGuided(budget, probe))->Pick(prompt, scores);
  };
  Rows both = Range(14, 34);
  for (const uint32_t row : Range(36, 40)) both.push_back(row);
  // One budget for the two chunks.
  const ProbeOptions plain{.fading_rows = 0};
  EXPECT_EQ(pick(1, plain), (Rows{20, 33}));
  EXPECT_EQ(pick(2, plain), (Rows{14, 20, 33, 39}));
  EXPECT_EQ(pick(11, plain).size(), 22u);
  EXPECT_EQ(pick(12, plain), both);
  EXPECT_EQ(pick(2, {.first_rows = 1, .fading_rows = 0}), (Rows{14, 20, 33, 36}));
  EXPECT_EQ(PlanRows(pieces, QueryGuided(16), 0).final_recomputed, 24u);
  EXPECT_EQ(PlanRows(pieces, QueryGuided(5), 0).final_recomputed, 10u);
  // A budget of each.
  const ProbeOptions each{.fading_rows = 0, .shared_budget = false};
  EXPECT_EQ(pick(2, each), (Rows{20, 33, 36, 39}));
  EXPECT_EQ(pick(3, each), (Rows{14, 20, 33, 36, 37, 39}));
  EXPECT_EQ(pick(100, each), both);  // a chunk shorter than the budget is recomputed whole
  EXPECT_EQ(PlanRows(pieces, QueryGuided(16, each), 0).final_recomputed, 20u);
  EXPECT_EQ(pick(3, {.first_rows = 2, .fading_rows = 0, .shared_budget = false}),
            (Rows{14, 15, 20, 36, 37, 39}));
  EXPECT_EQ(pick(2, {.first_rows = 9, .fading_rows = 0, .shared_budget = false}), (Rows{14, 15, 36, 37}));
}

TEST(LinkPolicyTest, QueryGuidedTrustsRowsTheLessTheNearerTheyAreToTheirChunksStart) {
  const auto pieces = Pieces();
  const PromptView prompt(pieces);
  std::vector<double> scores(45, 0.0);
  // Of the chunk at row 14: rows 0 and 15; with 5 rows of fading the latter weighs half as much.
  scores[14] = 1.0;
  scores[29] = 1.9;
  const auto pick = [&](uint32_t fading_rows, double far) {
    scores[29] = far;
    return LinkPolicy::Make(
               QueryGuided(1, {.first_rows = 0, .fading_rows = fading_rows, .shared_budget = false}))
        ->Pick(prompt, scores)[0];
  };
  EXPECT_EQ(pick(5, 1.9), 14u);
  EXPECT_EQ(pick(5, 2.1), 29u);
  EXPECT_EQ(pick(0, 1.9), 29u);
}

TEST(LinkPolicyTest, WithoutChunksToRepairThereIsNoPhaseBeforeTheLink) {
  const std::vector<PromptPiece> text = {Piece(9, false, 0)};
  const std::vector<PromptPiece> exact = {Piece(9, true, 0), Piece(3, false, 20)};
  for (const LinkStrategy& strategy :
       {CacheBlend(150'000), CacheBlend(150'000, BlendPick::kAttention), QueryGuided(16)}) {
    EXPECT_EQ(PlanRows(text, strategy, 0).picks, 0u) << strategy.Name();
    EXPECT_EQ(PlanRows(exact, strategy, 0).picks, 0u) << strategy.Name();
    EXPECT_TRUE(PlanRows(exact, strategy, 0).exact);
  }
}

TEST(LinkPolicyTest, EqualScoresGoToTheLowerRow) {
  EXPECT_EQ(HighestRows({1, 2, 3, 4}, std::vector<double>{9, 1, 1, 1, 2}, 2), (Rows{1, 4}));
  EXPECT_EQ(HighestRows({3, 1}, std::vector<double>{0, 0, 0, 0}, 9), (Rows{1, 3}));
  EXPECT_EQ(HighestRows({}, {}, 3), Rows{});
}

// What is picked never exceeds what was planned, and is what is computed in the end.
TEST(LinkPolicyTest, RandomPromptsStayWithinTheirPlans) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<PromptPiece> pieces;
    for (size_t i = 1 + rng.Below(6); i > 0; --i) {
      pieces.push_back(
          Piece(static_cast<uint32_t>(rng.Below(30)), rng.Below(3) > 0, static_cast<TokenId>(rng.Below(3))));
    }
    if (JoinTokens(pieces).empty()) continue;
    const auto ppm = static_cast<uint32_t>(rng.Below(1'000'001));
    const auto budget = static_cast<uint32_t>(1 + rng.Below(40));
    const ProbeOptions probe{.first_rows = static_cast<uint32_t>(rng.Below(9)),
                             .shared_budget = rng.Below(2) == 0};
    const LinkStrategy strategies[] = {CacheBlend(ppm), CacheBlend(ppm, BlendPick::kPaper),
                                       QueryGuided(budget), QueryGuided(budget, probe)};
    const LinkStrategy& strategy = strategies[rng.Below(4)];
    const auto policy = LinkPolicy::Make(strategy);
    const PromptView prompt(pieces);
    const RowPlan before = policy->Before(prompt, 0);
    if (before.picks == 0) continue;
    std::vector<double> scores;
    for (uint32_t row = 0; row < prompt.rows(); ++row) scores.push_back(static_cast<double>(rng.Below(5)));
    const Rows picked = policy->Pick(prompt, scores);
    ASSERT_TRUE(std::is_sorted(picked.begin(), picked.end()));
    ASSERT_EQ(std::set<uint32_t>(picked.begin(), picked.end()).size(), picked.size());
    ASSERT_LE(picked.size(), before.picks);
    const RowPlan plan = PlanReading(prompt, picked);
    ASSERT_LE(plan.rows.size(), before.rows.size() + before.picks);
    ASSERT_EQ(plan.cached + plan.recomputed + plan.fresh, prompt.rows());
    ASSERT_EQ(plan.rows.back() + 1, prompt.rows());
    for (const uint32_t row : picked)
      ASSERT_TRUE(std::binary_search(plan.rows.begin(), plan.rows.end(), row));
    if (before.final_recomputed.has_value()) {
      ASSERT_EQ(plan.recomputed, *before.final_recomputed) << strategy.Name() << " round " << round;
    }
    uint32_t read = 0;
    for (const uint32_t rows : RowsRead(plan, pieces.size())) read += rows;
    ASSERT_EQ(read, plan.cached);
  }
}

}  // namespace
}  // namespace epic
