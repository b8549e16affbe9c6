// Packed IDs come back as they were and sort as their text does; interned values are shared and go with their
// last user; pools give their numbers out again.
#include "services/kv_store/core/packed_key.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "services/kv_store/core/indexed_pool.h"
#include "services/kv_store/core/intern_pool.h"

namespace epic::kv_store {
namespace {

TEST(PackedKeyTest, IdsComeBackAndSortAsTheirText) {
  std::set<CacheId> ids;
  for (TokenId token = 0; token < 2000; ++token)
    ids.insert(CacheId::Of("t", {}, std::vector<TokenId>{token}));
  for (const char* text : {"ctx_zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz", "ctx_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                           "ctx_7777777777777777777777777777777a", "ctx_22222222222222222222222222222223"}) {
    ids.insert(*CacheId::Parse(text));
  }
  PackedId last;
  for (const CacheId& id : ids) {
    const PackedId packed = Pack(id);
    EXPECT_EQ(Unpack(packed), id);
    EXPECT_LT(last, packed) << id.text();
    last = packed;
  }
  EXPECT_TRUE(Unpack(Pack(CacheId())).empty());
}

TEST(InternPoolTest, ValuesAreSharedAndGoWithTheirLastUser) {
  InternPool<std::string> pool;
  const uint32_t a = pool.Take(std::string("a"));
  const uint32_t b = pool.Take(std::string("b"));
  EXPECT_EQ(pool.Take(std::string("a")), a);
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.Find("a"), a);
  EXPECT_EQ(pool[b], "b");
  pool.Release(a);
  EXPECT_EQ(pool.Find("a"), a) << "one user is left";
  pool.Release(a);
  EXPECT_EQ(pool.Find("a"), InternPool<std::string>::kNone);
  EXPECT_EQ(pool.size(), 1u);
  EXPECT_EQ(pool.Take(std::string("c")), a) << "numbers stay small";
}

TEST(IndexedPoolTest, NumbersStayUntilErasedAndAreGivenOutAgain) {
  IndexedPool<std::string> pool;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(pool.Add(std::to_string(i)), static_cast<uint32_t>(i));
  const std::string* const place = &pool[7];
  IndexedPool<std::string> copy(pool);
  pool.Erase(500);
  EXPECT_EQ(pool.size(), 999u);
  EXPECT_EQ(copy[500], "500");
  EXPECT_EQ(pool.Add("new"), 500u);
  EXPECT_EQ(pool[500], "new");
  EXPECT_EQ(&pool[7], place);
}

TEST(IndexedPoolTest, ValuesInBigBlocksStayAndAreCopied) {
  constexpr uint32_t kValues = 400'000;  // several big blocks
  IndexedPool<std::string> pool;
  for (uint32_t i = 0; i < kValues; ++i) ASSERT_EQ(pool.Add(std::to_string(i)), i);
  const std::string* const place = &pool[300'000];
  for (uint32_t i = 0; i < kValues; i += 3) pool.Erase(i);
  const IndexedPool<std::string> copy(pool);
  EXPECT_EQ(copy.size(), pool.size());
  for (uint32_t i = 0; i < kValues; ++i) ASSERT_EQ(copy[i], i % 3 == 0 ? "" : std::to_string(i));
  EXPECT_EQ(&pool[300'000], place);
  EXPECT_LE(pool.memory_bytes(), kValues * (sizeof(std::string) + 4) + (4u << 20));
}

}  // namespace
}  // namespace epic::kv_store
