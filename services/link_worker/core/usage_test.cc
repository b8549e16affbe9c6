#include "services/link_worker/core/usage.h"

#include <gtest/gtest.h>

#include "services/engine/testing/plain_object.h"

namespace epic {
namespace {

constexpr auto kText = LinkPiece::Kind::kText;
constexpr auto kContext = LinkPiece::Kind::kContext;
constexpr auto kHead = LinkPiece::Kind::kHead;

LinkStats Stats(uint32_t cached, uint32_t recomputed, uint32_t fresh) {
  LinkStats stats;
  stats.prompt_tokens = cached + recomputed + fresh;
  stats.cached_tokens = cached;
  stats.recomputed_tokens = recomputed;
  stats.fresh_tokens = fresh;
  return stats;
}

TEST(UsageTest, WhatWasStoredStaysAsTheEngineCounted) {
  const std::vector<PieceAccount> pieces = {{kHead, 20, 20}, {kContext, 100, 84}, {kText, 10, 0}};
  EXPECT_EQ(AccountFor(Stats(104, 16, 10), pieces, true), (PromptUsage{130, 104, 16, 10}));
}

TEST(UsageTest, AHeadCompiledForTheRequestIsFresh) {
  const std::vector<PieceAccount> pieces = {{kHead, 20, 20, true}, {kContext, 100, 84}, {kText, 10, 0}};
  EXPECT_EQ(AccountFor(Stats(104, 16, 10), pieces, true), (PromptUsage{130, 84, 16, 30}));
}

TEST(UsageTest, AContextCompiledForTheRequestIsRecomputed) {
  const std::vector<PieceAccount> pieces = {{kHead, 20, 20}, {kContext, 100, 84, true}, {kText, 10, 0}};
  EXPECT_EQ(AccountFor(Stats(104, 16, 10), pieces, true), (PromptUsage{130, 20, 100, 10}));
}

TEST(UsageTest, UnderFullContextsAreRecomputedAndTheRestIsFresh) {
  const std::vector<PieceAccount> pieces = {{kHead, 20, 0}, {kContext, 100, 0}, {kText, 10, 0}};
  EXPECT_EQ(AccountFor(Stats(0, 0, 130), pieces, false), (PromptUsage{130, 0, 100, 30}));
}

TEST(UsageTest, UnderPrefixTheCachedBeginningEndsInsideAContext) {
  const std::vector<PieceAccount> pieces = {{kText, 20, 0}, {kContext, 100, 0}, {kText, 10, 0}};
  EXPECT_EQ(AccountFor(Stats(50, 0, 80), pieces, false), (PromptUsage{130, 50, 70, 10}));
}

PromptPiece Piece(uint32_t n, bool covered) {
  PromptPiece piece;
  piece.tokens.assign(n, 1);
  if (!covered) return piece;
  piece.object = std::make_shared<testing::PlainObject>(
      KvLayout{.layers = 1, .kv_heads = 1, .head_dim = 2, .tokens = n, .dtype = KvDtype::kF32});
  return piece;
}

TEST(UsageTest, WhatWillBeRecomputedIsSaidBeforeTheRunWhereItIsKnown) {
  const std::vector<PromptPiece> pieces = {Piece(20, true), Piece(100, true), Piece(10, false)};
  const std::vector<PieceAccount> stored = {{kHead, 20}, {kContext, 100}, {kText, 10}};
  const auto planned = [&](const LinkStrategy& strategy, const std::vector<PieceAccount>& accounts) {
    return PlannedRecomputed(pieces, strategy, accounts, /*objects_given=*/true);
  };
  const LinkStrategy legolink{.kind = StrategyKind::kLegoLink, .k = 16};
  const LinkStrategy cacheblend{.kind = StrategyKind::kCacheBlend};
  const LinkStrategy query_guided{.kind = StrategyKind::kQueryGuided, .budget = 7};
  EXPECT_EQ(planned(legolink, stored), 16u);
  EXPECT_EQ(planned(cacheblend, stored), 15u);
  EXPECT_EQ(planned(query_guided, stored), 7u);
  EXPECT_EQ(planned({.kind = StrategyKind::kPrefix}, stored), std::nullopt);
  // A context compiled for the request is recomputed whole, and how much of it was read only the run can
  // tell.
  const std::vector<PieceAccount> compiled = {{kHead, 20}, {kContext, 100, 0, true}, {kText, 10}};
  EXPECT_EQ(planned(legolink, compiled), 100u);
  EXPECT_EQ(planned(cacheblend, compiled), std::nullopt);
  EXPECT_EQ(PlannedRecomputed(pieces, {.kind = StrategyKind::kFull}, stored, false), 100u);
  // The last row is covered: it is computed, picked or not.
  const std::vector<PromptPiece> covered = {Piece(10, false), Piece(100, true)};
  const std::vector<PieceAccount> accounts = {{kText, 10}, {kContext, 100}};
  EXPECT_EQ(PlannedRecomputed(covered, query_guided, accounts, true), std::nullopt);
  EXPECT_EQ(PlannedRecomputed(covered, legolink, accounts, true), 17u);
}

}  // namespace
}  // namespace epic
