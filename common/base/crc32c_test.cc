#include "common/base/crc32c.h"

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(Crc32cTest, MatchesTheStandardCheckValue) { EXPECT_EQ(Crc32c(0, AsBytes("123456789")), 0xE3069283u); }

TEST(Crc32cTest, ExtendsOverPieces) {
  EXPECT_EQ(Crc32c(Crc32c(0, AsBytes("1234")), AsBytes("56789")), 0xE3069283u);
  EXPECT_EQ(Crc32c(77, {}), 77u);
}

TEST(Crc32cTest, ACopyHasTheBytesAndTheirChecksum) {
  for (const size_t size : {0, 1, 63, 8191, 8192, 8193, 100'000}) {
    std::string from(size, '\0');
    for (size_t at = 0; at < size; ++at) from[at] = static_cast<char>(at * 131 + at / 256);
    std::string to(size, 'x');
    EXPECT_EQ(CopyWithCrc32c(5, AsBytes(from), std::as_writable_bytes(std::span(to))),
              Crc32c(5, AsBytes(from)));
    EXPECT_EQ(to, from) << size;
  }
}

}  // namespace
}  // namespace epic
