// The golden files of this folder's formats: read as what they are, and written again to the byte.
#include <string>

#include <gtest/gtest.h>

#include "common/storage/object_codec.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/extents/extent_header.h"

namespace epic::kv_store {
namespace {

std::string Golden(const std::string& path) {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() + "/" + path);
}

ObjectHead GoldenHead() {
  const auto head = DecodeHead(AsBytes(Golden("common/storage/golden/object_small.v1.bin")));
  EXPECT_OK(head);
  return *head;
}

TEST(FormatGoldenTest, AnObjectEntryOfTheFirstVersionHasItsSlabsInRows) {
  const std::string golden = Golden("services/kv_store/golden/object_entry.v1.bin");
  ASSERT_OK_AND_ASSIGN(const ObjectEntry entry, DecodeObjectEntry(AsBytes(golden)));
  EXPECT_EQ(entry.number, 0x0102030405u);
  EXPECT_TRUE(entry.extents.empty());
  EXPECT_EQ(entry.head, GoldenHead());
  EXPECT_EQ(EncodeObjectEntry(entry), golden);
}

TEST(FormatGoldenTest, AnObjectEntryOfTheSecondVersionNamesItsExtents) {
  const std::string golden = Golden("services/kv_store/golden/object_entry.v2.bin");
  ASSERT_OK_AND_ASSIGN(const ObjectEntry entry, DecodeObjectEntry(AsBytes(golden)));
  EXPECT_EQ(entry.number, 77u);
  EXPECT_EQ(entry.extents, (SlabExtents{{0, 1, 3}, {2, 4096, 1}}));
  EXPECT_EQ(entry.head, GoldenHead());
  EXPECT_EQ(EncodeObjectEntry(entry), golden);
}

TEST(FormatGoldenTest, TheHeaderOfAnExtentFile) {
  const std::string golden = Golden("services/kv_store/golden/extent_header.v1.bin");
  const ExtentHeader header{.file = 7, .pages = 262'144};
  EXPECT_EQ(EncodeExtentHeader(header), golden);
  ASSERT_OK_AND_ASSIGN(const ExtentHeader back, DecodeExtentHeader(AsBytes(golden)));
  EXPECT_EQ(back, header);
}

TEST(FormatGoldenTest, AnEntryOfALaterVersionIsRefusedByName) {
  std::string later = Golden("services/kv_store/golden/object_entry.v2.bin");
  later[4] = 3;
  EXPECT_THAT(DecodeObjectEntry(AsBytes(later)), epic::testing::StatusIs(absl::StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace epic::kv_store
