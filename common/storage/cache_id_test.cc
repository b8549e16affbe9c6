#include "common/storage/cache_id.h"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/storage/kv_object.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

Digest Counting() {
  Digest digest;
  std::iota(digest.bytes.begin(), digest.bytes.end(), uint8_t{0});
  return digest;
}

// Golden values from an independent implementation (hashlib and base64 of Python over the documented
// encoding).
TEST(CacheIdTest, MatchesTheGoldenVectors) {
  const std::vector<TokenId> tokens = {1, 2, 3};
  EXPECT_EQ(CacheId::Of("default", Digest{}, tokens).text(), "ctx_fukwaidqc5hrnhpemhnc7zlzqxit3sab");
  EXPECT_EQ(CacheId::Of("acme", Counting(), {}).text(), "ctx_xc62ox5hlthjkbvo74pxvpxc5fqfgprz");
  const std::vector<TokenId> largest = {0xffffffff};
  EXPECT_EQ(CacheId::Of("default", Counting(), largest).text(), "ctx_wpdiklhzlwzo25vx7zi54kxnkue7sxf3");
}

TEST(CacheIdTest, TenantsNeverShareAnId) {
  const std::vector<TokenId> tokens = {1};
  EXPECT_NE(CacheId::Of("a", Digest{}, tokens), CacheId::Of("b", Digest{}, tokens));
}

TEST(CacheIdTest, ParsesOnlyItsOwnForm) {
  EXPECT_OK(CacheId::Parse("ctx_fukwaidqc5hrnhpemhnc7zlzqxit3sab"));
  for (const char* bad :
       {"", "ctx_", "ctx_FUKWAIDQC5HRNHPEMHNC7ZLZQXIT3SAB", "ctx_fukwaidqc5hrnhpemhnc7zlzqxit3sa",
        "ctx_fukwaidqc5hrnhpemhnc7zlzqxit3sa1", "abc_fukwaidqc5hrnhpemhnc7zlzqxit3sab"}) {
    EXPECT_FALSE(CacheId::Parse(bad).ok()) << bad;
  }
}

TEST(ObjectVariantTest, MatchesTheGoldenVectors) {
  EXPECT_EQ((ObjectVariant{
                 .prefix = CompilePrefixKind::kNone, .dtype = KvDtype::kBf16, .compute = ComputeFormat::kF32})
                .ToDigest()
                .Hex(),
            "574b0fb5d4bf9628fedab78400742425afc02568fc089c79ad3e9d9698a9f41a");
  EXPECT_EQ((ObjectVariant{.prefix = CompilePrefixKind::kBos4,
                           .prefix_tokens = Counting(),
                           .dtype = KvDtype::kF32,
                           .compute = ComputeFormat::kBf16})
                .ToDigest()
                .Hex(),
            "5f38541a621e0362a9f5a586aa337f8b150d28e8e77c604a8f691ad291e7532e");
}

}  // namespace
}  // namespace epic
