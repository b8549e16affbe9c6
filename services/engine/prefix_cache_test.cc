#include "services/engine/prefix_cache.h"

#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

namespace epic {
namespace {

constexpr KvShape kShape{.layers = 2, .kv_heads = 1, .head_dim = 4, .dtype = KvDtype::kF32};

std::shared_ptr<KvBlock> Block(size_t rows) {
  std::vector<uint32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), 0u);
  return std::make_shared<KvBlock>(kShape, positions);
}

uint64_t BytesOf(size_t rows) { return rows * (kShape.RowBytes() + sizeof(TokenId)); }

TEST(PrefixCacheTest, FindsTheLongestCommonBeginning) {
  PrefixCache cache(1 << 20);
  cache.Insert("a", {1, 2, 3, 4}, Block(4));
  cache.Insert("a", {1, 2, 9}, Block(3));
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{1, 2, 3, 8}).rows, 3u);
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{1, 2, 9, 9, 9}).rows, 3u);
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{1}).rows, 1u);
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{7}).rows, 0u);
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{7}).block, nullptr);
}

TEST(PrefixCacheTest, AnEntryReplacesItsOwnBeginningsAndIsNotKeptTwice) {
  PrefixCache cache(1 << 20);
  cache.Insert("a", {1, 2}, Block(2));
  cache.Insert("a", {1, 2, 3}, Block(3));
  EXPECT_EQ(cache.entries(), 1u);
  EXPECT_EQ(cache.bytes(), BytesOf(3));
  cache.Insert("a", {1, 2}, Block(2));
  cache.Insert("a", {1, 2, 3}, Block(3));
  EXPECT_EQ(cache.entries(), 1u);
}

TEST(PrefixCacheTest, TheLeastRecentlyUsedGoesFirstAndTheBoundHolds) {
  PrefixCache cache(BytesOf(6));
  cache.Insert("a", {1, 1}, Block(2));
  cache.Insert("a", {2, 2}, Block(2));
  cache.Insert("a", {3, 3}, Block(2));
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{1, 1}).rows, 2u);
  cache.Insert("a", {4, 4}, Block(2));
  EXPECT_EQ(cache.bytes(), BytesOf(6));
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{2, 2}).rows, 0u);
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{1, 1}).rows, 2u);
  cache.Insert("a", {5, 5, 5, 5, 5, 5, 5}, Block(7));
  EXPECT_EQ(cache.Find("a", std::vector<TokenId>{5}).rows, 0u);
  EXPECT_EQ(cache.entries(), 3u);
}

TEST(PrefixCacheTest, EntriesOfAnotherTenantAreNothing) {
  PrefixCache cache(BytesOf(6));
  const std::vector<TokenId> tokens = {1, 2, 3};
  cache.Insert("a", {1, 2, 3}, Block(3));
  EXPECT_EQ(cache.Find("b", tokens).rows, 0u);
  EXPECT_EQ(cache.Find("", tokens).rows, 0u);
  // Neither kept once for both, nor replaced by another's longer one.
  cache.Insert("b", {1, 2}, Block(2));
  EXPECT_EQ(cache.entries(), 2u);
  EXPECT_EQ(cache.Find("b", tokens).rows, 2u);
  EXPECT_EQ(cache.Find("a", tokens).rows, 3u);
  cache.Insert("b", {1, 2, 3}, Block(3));
  EXPECT_EQ(cache.entries(), 2u);
  EXPECT_EQ(cache.Find("a", tokens).rows, 3u);
  // A lookup of another's tokens refreshes nothing: b's entry is now the older one, and goes first.
  EXPECT_EQ(cache.Find("c", tokens).rows, 0u);
  cache.Insert("c", {4, 4}, Block(2));
  EXPECT_EQ(cache.Find("b", tokens).rows, 0u);
  EXPECT_EQ(cache.Find("a", tokens).rows, 3u);
}

TEST(PrefixCacheTest, WithoutCapacityNothingIsKept) {
  PrefixCache cache(0);
  EXPECT_FALSE(cache.Takes(1));
  cache.Insert("a", {1}, Block(1));
  EXPECT_EQ(cache.entries(), 0u);
}

TEST(KvBlockTest, RowsAreCopiedToTheirPositions) {
  const auto source = Block(3);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (uint32_t i = 0; i < 12; ++i) {
      const float k = 100.0f * layer + i;
      const float v = -k;
      std::memcpy(source->k(layer) + 4 * i, &k, 4);
      std::memcpy(source->v(layer) + 4 * i, &v, 4);
    }
  }
  SharedSegment segment;
  segment.block = source;
  segment.rows = 2;
  segment.first_row = 1;
  KvBlock own(kShape, {0, 2});
  std::memcpy(own.k(1), source->k(1), 32);
  std::memcpy(own.v(1), source->v(1), 32);
  std::memset(own.k(0), 0, 64);
  KvBlock whole(kShape, {0, 1, 2});
  CopyRows(kShape, segment, &whole);
  CopyRows(kShape, own, 2, &whole);
  float value;
  std::memcpy(&value, whole.k(0) + 16, 4);
  EXPECT_EQ(value, 4.0f);
  std::memcpy(&value, whole.v(1) + 16, 4);
  EXPECT_EQ(value, -104.0f);
  std::memcpy(&value, whole.k(1) + 32, 4);
  EXPECT_EQ(value, 104.0f);
}

}  // namespace
}  // namespace epic
