#include "common/storage/record_codec.h"

#include <numeric>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using epic::testing::StatusIs;

std::string Golden(const std::string& name) {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() + "/common/storage/golden/" + name);
}

// What golden/make_golden.py writes.
ContextRecord GoldenRecord() {
  ContextRecord record;
  record.tenant = "acme";
  std::iota(record.model_identity.bytes.begin(), record.model_identity.bytes.end(), uint8_t{0});
  const std::vector<TokenId> tokens = {5, 6, 7}, head = {9, 10};
  record.id = CacheId::Of("acme", record.model_identity, tokens);
  record.model = "tiny";
  record.token_count = 3;
  record.created_at_ms = 1700000000123;
  record.created = {1700000000122, 3};
  record.hidden = true;
  record.durability = Durability::kObject;
  record.compile_prefix = {.kind = CompilePrefixKind::kSystem,
                           .tokens = head,
                           .context_id = CacheId::Of("acme", record.model_identity, head)};
  record.state = ContextState::kFailed;
  record.compile_ms = 42;
  record.error = "why";
  record.ttl_seconds = 60;
  record.expires_at_ms = 1700000060123;
  record.expiry_changed = {1700000000123, 4};
  record.pin = Pin::kHard;
  record.pin_changed = {1700000000124, 5};
  record.tags = {"a", "ключ"};
  record.tags_changed = {1700000000125, 6};
  record.name = "name";
  record.name_changed = {1700000000126, 7};
  record.last_used_at_ms = 1700000001000;
  record.hits = 17;
  return record;
}

// Corrects the trailing checksum, so that a field itself is what is wrong.
std::string WithCrc(std::string bytes) {
  bytes.resize(bytes.size() - 4);
  AppendLittle<uint32_t>(&bytes, Crc32c(0, AsBytes(bytes)));
  return bytes;
}

TEST(RecordCodecTest, WritesAndReadsTheGoldenFiles) {
  const std::string golden = Golden("record.v2.bin");
  EXPECT_EQ(EncodeRecord(GoldenRecord()), golden);
  ASSERT_OK_AND_ASSIGN(const ContextRecord record, DecodeRecord(AsBytes(golden)));
  EXPECT_EQ(EncodeRecord(record), golden);
  EXPECT_EQ(record.tags, GoldenRecord().tags);
  EXPECT_EQ(record.compile_prefix, GoldenRecord().compile_prefix);
  const std::vector<TokenId> tokens = {0, 1, 0xffffffff};
  EXPECT_EQ(EncodeTokens(tokens), Golden("tokens.v1.bin"));
  ASSERT_OK_AND_ASSIGN(const auto read, DecodeTokens(AsBytes(Golden("tokens.v1.bin"))));
  EXPECT_EQ(read, tokens);
}

// It had no time of creation: that of the first change stands for it.
TEST(RecordCodecTest, ReadsVersion1) {
  ContextRecord expected = GoldenRecord();
  expected.created = expected.expiry_changed;
  ASSERT_OK_AND_ASSIGN(const ContextRecord record, DecodeRecord(AsBytes(Golden("record.v1.bin"))));
  EXPECT_EQ(EncodeRecord(record), EncodeRecord(expected));
}

TEST(RecordCodecTest, RefusesANewerVersion) {
  std::string tokens = Golden("tokens.v1.bin");
  tokens[4] = 2;
  EXPECT_THAT(DecodeTokens(AsBytes(WithCrc(tokens))), StatusIs(absl::StatusCode::kUnimplemented));
  std::string bytes = Golden("record.v2.bin");
  bytes[4] = 3;
  EXPECT_THAT(DecodeRecord(AsBytes(WithCrc(bytes))),
              StatusIs(absl::StatusCode::kUnimplemented, ::testing::HasSubstr("newer")));
  bytes[4] = 0;
  EXPECT_THAT(DecodeRecord(AsBytes(WithCrc(bytes))), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RecordCodecTest, RefusesEveryFlippedBitAndEveryTruncation) {
  std::string bytes = Golden("record.v2.bin");
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[at] ^= static_cast<char>(1 << bit);
      EXPECT_FALSE(DecodeRecord(AsBytes(bytes)).ok()) << at;
      bytes[at] ^= static_cast<char>(1 << bit);
    }
    EXPECT_FALSE(DecodeRecord(AsBytes(bytes).first(at)).ok()) << at;
  }
  EXPECT_FALSE(DecodeRecord(AsBytes(bytes + "x")).ok());
}

// With the checksum made right again, whatever a flipped byte turns a record into is either refused or a
// record that encodes to those bytes.
TEST(RecordCodecTest, AcceptsNothingThatItWouldNotWrite) {
  Rng rng(3);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = Golden("record.v2.bin");
    for (uint64_t flips = 1 + rng.Below(3); flips > 0; --flips) {
      bytes[8 + rng.Below(bytes.size() - 12)] = static_cast<char>(rng.Next());
    }
    bytes = WithCrc(bytes);
    const auto record = DecodeRecord(AsBytes(bytes));
    if (!record.ok()) continue;
    const auto again = DecodeRecord(AsBytes(EncodeRecord(*record)));
    ASSERT_OK(again);
    EXPECT_EQ(EncodeRecord(*again), EncodeRecord(*record));
  }
}

TEST(RecordCodecTest, ValidateNamesTheFieldOverItsLimit) {
  ContextRecord record = GoldenRecord();
  EXPECT_OK(ValidateRecord(record));
  record.name = std::string(1025, 'n');
  EXPECT_THAT(ValidateRecord(record),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("name")));
  record = GoldenRecord();
  record.tags = {"b", "a"};
  EXPECT_FALSE(ValidateRecord(record).ok());
}

}  // namespace
}  // namespace epic
