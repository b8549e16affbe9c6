#include "common/base/digest.h"

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(DigestTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Sha256Of(AsBytes("abc")).Hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Of({}).Hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(DigestTest, PiecesGiveTheSameDigestAsTheWhole) {
  EXPECT_EQ(Sha256().Update("ab").Update("").Update("c").Finish(), Sha256Of(AsBytes("abc")));
}

TEST(DigestTest, Base32MatchesRfc4648InLowerCaseWithoutPadding) {
  EXPECT_EQ(Base32Lower(AsBytes("")), "");
  EXPECT_EQ(Base32Lower(AsBytes("f")), "my");
  EXPECT_EQ(Base32Lower(AsBytes("fo")), "mzxq");
  EXPECT_EQ(Base32Lower(AsBytes("foobar")), "mzxw6ytboi");
  EXPECT_EQ(Base32Lower(AsBytes(std::string(20, 'x'))).size(), 32u);
}

}  // namespace
}  // namespace epic
