// The format of backups: the golden file, what is refused and in which words, and how the file comes to be.
#include "services/kv_store/tools/backup_file.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;
using epic::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Golden() {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() +
                                      "/services/kv_store/tools/golden/backup.v1.bin");
}

BackupEntry LiveEntry(uint64_t seed, const std::string& tenant = "default") {
  BackupEntry entry;
  entry.tokens = TokensOf(seed, 20);
  entry.key = {tenant, CacheId::Of(tenant, {}, entry.tokens)};
  ContextRecord record;
  record.tenant = tenant;
  record.id = entry.key.id;
  record.token_count = 20;
  record.created = {1'700'000'000'000, 1};
  entry.state.record = record;
  return entry;
}

BackupEntry GoneEntry(uint64_t seed) {
  BackupEntry entry = LiveEntry(seed);
  entry.tokens.clear();
  entry.state.record.reset();
  entry.state.tombstone =
      Tombstone{.at = {1'700'000'000'500, 0}, .deleted = {1'700'000'000'500, 0}, .created_at_ms = 1};
  return entry;
}

class BackupFileTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.path() + "/backup"; }
  absl::Status VerifyBytes(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return VerifyBackup(path()).status();
  }
  size_t FilesInFolder() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator()));
  }
  // Entries as they come, whether they may or not.
  std::string Bytes(const std::vector<BackupEntry>& entries, BackupCounts counts) const {
    std::string bytes = EncodeBackupHeader({});
    for (const BackupEntry& entry : entries) bytes += EncodeBackupEntry(entry);
    return bytes + EncodeBackupEnd({.counts = counts, .digest = Sha256Of(AsBytes(bytes))});
  }

  const epic::testing::TempDir dir_;
};

TEST_F(BackupFileTest, TheGoldenFileIsReadAndWrittenAgainToTheByte) {
  ASSERT_OK(VerifyBytes(Golden()));
  ASSERT_OK_AND_ASSIGN(const auto reader, BackupReader::Open(path()));
  EXPECT_EQ(reader->header(),
            (BackupHeader{.created_at_ms = 1'700'000'100'000, .incarnation = 0x1122334455667788}));
  ASSERT_OK_AND_ASSIGN(auto file, CreateOutputFile(path() + ".again", /*overwrite=*/false));
  BackupWriter writer(std::move(file), reader->header());
  std::vector<BackupEntry> entries;
  while (true) {
    ASSERT_OK_AND_ASSIGN(const std::optional<BackupEntry> entry, reader->Next());
    if (!entry.has_value()) break;
    ASSERT_OK(writer.Add(*entry));
    entries.push_back(*entry);
  }
  ASSERT_OK(writer.Finish());
  EXPECT_EQ(epic::testing::ReadFileOrDie(path() + ".again"), Golden());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].key.tenant, "tenant");
  EXPECT_EQ(entries[0].state.tombstone->deleted, (HybridTime{1'650'000'000'000, 0}));
  EXPECT_EQ(entries[1].tokens, (std::vector<TokenId>{1, 2, 3, 49'999}));
  EXPECT_EQ(entries[1].state.record->name, "naïve name");
  EXPECT_EQ(entries[1].state.record->tags, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(entries[1].state.tombstone.has_value());
  EXPECT_FALSE(entries[2].state.record.has_value());
  EXPECT_EQ(entries[2].state.tombstone->deleted, (HybridTime{1'700'000'050'000, 1}));
  EXPECT_EQ(writer.counts(), (BackupCounts{.live = 2, .gone = 1, .tokens = 24}));
  EXPECT_EQ(writer.bytes(), Golden().size());
}

TEST_F(BackupFileTest, AFileThatIsCutOffAnywhereIsToldToBeSo) {
  const std::string golden = Golden();
  for (size_t bytes = 0; bytes < golden.size(); ++bytes) {
    ASSERT_THAT(VerifyBytes(golden.substr(0, bytes)),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(path() + " is cut off after " + std::to_string(bytes) + " bytes")));
  }
}

TEST_F(BackupFileTest, AFlippedBitAnywhereIsRefused) {
  const std::string golden = Golden();
  for (size_t bit = 0; bit < golden.size() * 8; bit += 9) {  // one of each byte
    std::string bytes = golden;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const absl::Status status = VerifyBytes(bytes);
    ASSERT_FALSE(status.ok()) << "bit " << bit;
    ASSERT_THAT(MessageOf(status), HasSubstr(path())) << "bit " << bit;
    if (bit / 8 >= kBackupHeaderBytes) {
      ASSERT_THAT(status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is damaged at byte"))) << bit;
    }
  }
}

TEST_F(BackupFileTest, WhatIsNoBackupOrANewerOneIsRefusedByName) {
  EXPECT_THAT(VerifyBytes(std::string(1000, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no backup")));
  std::string newer = Golden();
  newer[8] = 2;
  const uint32_t crc = Crc32c(0, AsBytes(newer).first(28));
  newer.replace(28, 4, reinterpret_cast<const char*>(&crc), 4);
  EXPECT_THAT(VerifyBytes(newer), StatusIs(absl::StatusCode::kUnimplemented,
                                           AllOf(HasSubstr("version 2"), HasSubstr("use the newer EPIC"))));
  EXPECT_THAT(VerifyBackup(dir_.path() + "/none").status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(VerifyBackup(dir_.path()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is not a file")));
}

TEST_F(BackupFileTest, EntriesThatDoNotBelongTogetherAreRefused) {
  const BackupEntry a = LiveEntry(1), b = LiveEntry(2), gone = GoneEntry(3);
  const bool in_order = RowKey(a.key) < RowKey(b.key);
  const BackupEntry &first = in_order ? a : b, &second = in_order ? b : a;
  const BackupCounts two{.live = 2, .gone = 0, .tokens = 40};
  EXPECT_OK(VerifyBytes(Bytes({first, second}, two)));
  EXPECT_THAT(VerifyBytes(Bytes({second, first}, two)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not in order")));
  EXPECT_THAT(VerifyBytes(Bytes({first, first}, two)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not in order")));
  EXPECT_THAT(VerifyBytes(Bytes({gone, first}, {.live = 1, .gone = 1, .tokens = 20})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not in order")));
  EXPECT_THAT(VerifyBytes(Bytes({first}, two)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not as many")));
  EXPECT_THAT(VerifyBytes(Bytes({first, second}, two) + "x"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("follows its end")));
  BackupEntry wrong = first;
  wrong.tokens = second.tokens;
  EXPECT_THAT(CheckBackupEntry(wrong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not those of the Cache ID")));
  EXPECT_THAT(VerifyBytes(Bytes({wrong}, {.live = 1, .gone = 0, .tokens = 20})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not those of the Cache ID")));
  wrong = first;
  wrong.key.tenant = "another";
  EXPECT_THAT(CheckBackupEntry(wrong), StatusIs(absl::StatusCode::kInvalidArgument));
  wrong = first;
  wrong.state.tombstone = gone.state.tombstone;
  EXPECT_THAT(CheckBackupEntry(wrong),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("that is gone")));
  wrong = gone;
  wrong.state.tombstone.reset();
  EXPECT_THAT(CheckBackupEntry(wrong), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(BackupFileTest, AnEmptyBackupIsOne) {
  ASSERT_OK_AND_ASSIGN(auto file, CreateOutputFile(path(), false));
  BackupWriter writer(std::move(file), {.created_at_ms = 5});
  ASSERT_OK(writer.Finish());
  ASSERT_OK_AND_ASSIGN(const BackupSummary summary, VerifyBackup(path()));
  EXPECT_EQ(summary.counts, BackupCounts{});
  EXPECT_EQ(summary.header.created_at_ms, 5);
  EXPECT_EQ(summary.bytes, fs::file_size(path()));
}

TEST_F(BackupFileTest, AFileAppearsWholeOrNotAtAllAndIsReadByItsOwnerOnly) {
  {
    ASSERT_OK_AND_ASSIGN(const auto file, CreateOutputFile(path(), false));
    ASSERT_OK(file->Append(std::string(3 << 20, 'a')));
    EXPECT_FALSE(fs::exists(path()));
  }
  EXPECT_EQ(FilesInFolder(), 0u) << "what was not published is removed";
  ASSERT_OK_AND_ASSIGN(const auto file, CreateOutputFile(path(), false));
  ASSERT_OK(file->Append("first"));
  ASSERT_OK(file->Publish());
  struct stat info = {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(FilesInFolder(), 1u);
}

TEST_F(BackupFileTest, AFileThatExistsIsReplacedOnlyWhenAskedFor) {
  ASSERT_OK_AND_ASSIGN(const auto late, CreateOutputFile(path(), false));
  ASSERT_OK(late->Append("late"));
  std::ofstream(path()) << "precious";
  EXPECT_THAT(late->Publish(), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("--force")));
  EXPECT_THAT(CreateOutputFile(path(), false).status(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(epic::testing::ReadFileOrDie(path()), "precious");
  ASSERT_OK_AND_ASSIGN(const auto forced, CreateOutputFile(path(), true));
  ASSERT_OK(forced->Append("new"));
  ASSERT_OK(forced->Publish());
  EXPECT_EQ(epic::testing::ReadFileOrDie(path()), "new");
}

}  // namespace
}  // namespace epic::kv_store
