// The golden files of this folder's formats: read as what they are, and written again to the byte; and a
// directory of an earlier version, read.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/status/error.h"
#include "common/storage/object_codec.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/extents/extent_header.h"
#include "services/kv_store/testing/store_fixtures.h"

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

TEST(FormatGoldenTest, ATombstoneOfTheThirdVersionIsWrittenAsItIsRead) {
  const std::string golden = Golden("services/kv_store/golden/tombstone.v3.bin");
  ASSERT_OK_AND_ASSIGN(const Tombstone tombstone, DecodeTombstone(AsBytes(golden)));
  const Tombstone expected{.at = {1'700'000'000'123, 4},
                           .cause = RemovalCause::kExpired,
                           .deleted = {1'650'000'000'000, 7},
                           .expired_life = {1'660'000'000'000, 8},
                           .expired = {1'670'000'000'000, 9},
                           .created_at_ms = 1'600'000'000'000};
  EXPECT_EQ(tombstone, expected);
  EXPECT_EQ(EncodeTombstone(tombstone), golden);
}

TEST(FormatGoldenTest, TombstonesOfEarlierVersionsAreRead) {
  for (const int version : {1, 2}) {
    SCOPED_TRACE(version);
    const std::string golden =
        Golden("services/kv_store/golden/tombstone.v" + std::to_string(version) + ".bin");
    ASSERT_OK_AND_ASSIGN(const Tombstone tombstone, DecodeTombstone(AsBytes(golden)));
    EXPECT_EQ(tombstone.at, (HybridTime{1'700'000'000'123, 4}));
    EXPECT_EQ(tombstone.cause, RemovalCause::kExpired);
    EXPECT_EQ(tombstone.created_at_ms.has_value(), version == 2);
  }
}

TEST(FormatGoldenTest, AnEntryOfALaterVersionIsRefusedByName) {
  std::string later = Golden("services/kv_store/golden/object_entry.v2.bin");
  later[4] = 3;
  EXPECT_THAT(DecodeObjectEntry(AsBytes(later)), epic::testing::StatusIs(absl::StatusCode::kUnimplemented));
}

// A whole directory as the last version without extents wrote it: contexts "name1" and "name2" of 20 tokens
// with an object each, the first small and the second in a blob file, and a third context, deleted.
TEST(FormatGoldenTest, ADirectoryOfBeforeExtentsOpensAndReads) {
  const epic::testing::TempDir dir;
  const std::string data = dir.path() + "/data";
  std::filesystem::copy(epic::testing::SourceDir() + "/services/kv_store/golden/directory_of_blob_files",
                        data, std::filesystem::copy_options::recursive);
  const auto id = [](uint64_t seed) { return CacheId::Of("default", {}, TokensOf(seed, 20)); };
  const KvLayout layouts[] = {LayoutOf(20, 2, 1, 16), LayoutOf(20, 1, 2, 208)};
  const ManualClock clock;  // the directory's tombstone is of its first moment
  for (int life = 0; life < 2; ++life) {
    ASSERT_OK_AND_ASSIGN(
        const auto store,
        EmbeddedStore::Open(
            {.dir = data, .store = {.disk_bytes_max = 64 << 20, .clock = &clock, .writer = {}}}));
    for (const uint64_t seed : {1, 2}) {
      ASSERT_OK_AND_ASSIGN(const ContextRecord record, store->GetContext("default", id(seed)));
      EXPECT_EQ(record.name, "name" + std::to_string(seed));
      ASSERT_OK_AND_ASSIGN(const auto tokens, store->GetTokens("default", id(seed)));
      EXPECT_EQ(tokens, TokensOf(seed, 20));
      ASSERT_OK_AND_ASSIGN(const AcquireResult hit,
                           store->Acquire("default", {id(seed), {}}, layouts[seed - 1]));
      ASSERT_NE(hit.object, nullptr) << seed;
      EXPECT_TRUE(Holds(*hit.object, seed)) << seed;
    }
    EXPECT_EQ(CodeOf(store->GetContext("default", id(3)).status()), ErrorCode::kContextDeleted);
  }
}

}  // namespace
}  // namespace epic::kv_store
