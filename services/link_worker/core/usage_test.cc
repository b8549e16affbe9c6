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

TEST(UsageTest, ReadRowsFollowsThePlanOfTheEngine) {
  const auto object = [](uint32_t n) {
    return std::make_shared<testing::PlainObject>(
        KvLayout{.layers = 1, .kv_heads = 1, .head_dim = 2, .tokens = n, .dtype = KvDtype::kF32});
  };
  const auto piece = [&](uint32_t n, bool covered) {
    return PromptPiece{std::vector<TokenId>(n, 1), covered ? object(n) : nullptr, {}, true};
  };
  const std::vector<PromptPiece> pieces = {piece(5, true), piece(40, true), piece(7, true), piece(3, false)};
  EXPECT_EQ(ReadRows(pieces, {.kind = StrategyKind::kLegoLink, .k = 16}),
            (std::vector<uint32_t>{5, 24, 0, 0}));
  EXPECT_EQ(ReadRows(pieces, {.kind = StrategyKind::kNaive}), (std::vector<uint32_t>{5, 40, 7, 0}));
  EXPECT_EQ(ReadRows(pieces, {.kind = StrategyKind::kFull}), (std::vector<uint32_t>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace epic
