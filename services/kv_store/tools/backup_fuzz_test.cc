// Mutated backups into the reader: an error or the entries that the bytes say, never a crash. In half of the
// rounds the checksums of one entry are put right again, so that what lies behind them is reached. Prints its
// seeds.
#include <cstdio>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "services/kv_store/testing/mutate_bytes.h"
#include "services/kv_store/tools/backup_format.h"

namespace epic::kv_store {
namespace {

constexpr int kRounds = 20'000;

void MendCrc(std::string* bytes) {
  if (bytes->size() < sizeof(uint32_t)) return;
  const size_t at = bytes->size() - sizeof(uint32_t);
  const uint32_t crc = Crc32c(0, AsBytes(*bytes).first(at));
  std::memcpy(bytes->data() + at, &crc, sizeof crc);
}

TEST(BackupFuzzTest, DecodersSurviveHostileBytes) {
  const std::string golden = epic::testing::ReadFileOrDie(epic::testing::SourceDir() +
                                                          "/services/kv_store/tools/golden/backup.v1.bin");
  struct Piece {
    BackupKind kind;
    std::string bytes;  // payload and checksum
  };
  std::vector<Piece> pieces;
  for (size_t at = kBackupHeaderBytes; at < golden.size();) {
    const auto frame = DecodeBackupFrame(AsBytes(golden).subspan(at, kBackupFrameBytes));
    ASSERT_TRUE(frame.ok());
    at += kBackupFrameBytes;
    pieces.push_back({frame->kind, golden.substr(at, frame->payload_bytes + 4)});
    at += frame->payload_bytes + 4;
  }
  uint64_t accepted = 0;
  for (const uint64_t seed : {31, 32, 33}) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    Rng rng(seed);
    for (int round = 0; round < kRounds; ++round) {
      const bool mend = rng.Below(2) == 0;
      const Piece& piece = pieces[rng.Below(pieces.size())];
      std::string bytes = MutateBytes(piece.bytes, &rng);
      if (mend) MendCrc(&bytes);
      if (piece.kind == BackupKind::kEnd) {
        if (const auto end = DecodeBackupEnd(AsBytes(bytes)); end.ok()) ++accepted;
      } else if (const auto entry = DecodeBackupEntry(piece.kind, AsBytes(bytes)); entry.ok()) {
        ++accepted;
        EXPECT_EQ(EncodeBackupEntry(*entry).substr(kBackupFrameBytes), bytes);
      }
      bytes = MutateBytes(golden.substr(0, kBackupHeaderBytes), &rng);
      bytes.resize(kBackupHeaderBytes);
      if (mend) MendCrc(&bytes);
      if (const auto header = DecodeBackupHeader(AsBytes(bytes)); header.ok()) {
        ++accepted;
        EXPECT_EQ(EncodeBackupHeader(*header), bytes);
      }
      bytes.resize(kBackupFrameBytes);
      if (mend) MendCrc(&bytes);
      if (const auto frame = DecodeBackupFrame(AsBytes(bytes)); frame.ok()) ++accepted;
    }
  }
  EXPECT_GT(accepted, 1000u) << "the rounds do not get behind the checksums";
}

}  // namespace
}  // namespace epic::kv_store
