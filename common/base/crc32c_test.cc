#include "common/base/crc32c.h"

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(Crc32cTest, MatchesTheStandardCheckValue) { EXPECT_EQ(Crc32c(0, AsBytes("123456789")), 0xE3069283u); }

TEST(Crc32cTest, ExtendsOverPieces) {
  EXPECT_EQ(Crc32c(Crc32c(0, AsBytes("1234")), AsBytes("56789")), 0xE3069283u);
  EXPECT_EQ(Crc32c(77, {}), 77u);
}

}  // namespace
}  // namespace epic
