#include "services/kv_store/replication/node_row.h"

#include <cstdio>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic::kv_store {
namespace {

using epic::testing::StatusIs;

std::string Golden() {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() +
                                      "/services/kv_store/replication/golden/node_row.v1.bin");
}

TEST(NodeRowTest, TheGoldenFileIsReadAndWrittenToTheByte) {
  ASSERT_OK_AND_ASSIGN(const NodeRow row, DecodeNodeRow(AsBytes(Golden())));
  EXPECT_EQ(row.disk, DiskState::kEmpty);
  EXPECT_TRUE(row.erase_due);
  EXPECT_EQ(row.served_at, 41u);
  EXPECT_EQ(row.beats.beat, 43u);
  EXPECT_EQ(row.beats.starts,
            (std::map<uint64_t, HybridTime>{{40, {1'700'000'000'123, 7}}, {43, {1'700'010'800'000, 0}}}));
  EXPECT_EQ(EncodeNodeRow(row), Golden());
}

TEST(NodeRowTest, ALaterVersionIsRefused) {
  std::string later = Golden();
  later[4] = 2;
  EXPECT_THAT(DecodeNodeRow(AsBytes(later)), StatusIs(absl::StatusCode::kUnimplemented));
}

// An error or a value that encodes to what was read, never a crash. Half of the rounds get behind the
// checksum.
TEST(NodeRowTest, TheDecoderSurvivesHostileBytes) {
  int accepted = 0;
  for (const uint64_t seed : {31, 32, 33}) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    Rng rng(seed);
    for (int round = 0; round < 10'000; ++round) {
      std::string bytes = Golden();
      for (uint64_t changes = rng.Below(4); changes > 0 && !bytes.empty(); --changes) {
        const size_t at = rng.Below(bytes.size());
        if (rng.Below(6) == 0)
          bytes.resize(at);
        else if (rng.Below(6) == 0)
          bytes.insert(at, rng.Below(21), static_cast<char>(rng.Next()));
        else
          bytes[at] = static_cast<char>(rng.Next());
      }
      if (rng.Below(2) == 0 && bytes.size() > 4) {
        const uint32_t crc = Crc32c(0, AsBytes(bytes).first(bytes.size() - 4));
        std::memcpy(bytes.data() + bytes.size() - 4, &crc, sizeof crc);
      }
      const auto row = DecodeNodeRow(AsBytes(bytes));
      if (!row.ok()) continue;
      ++accepted;
      EXPECT_EQ(EncodeNodeRow(*row), bytes);
    }
  }
  EXPECT_GT(accepted, 1000);
}

TEST(BeatLogTest, WhatIsNotKnownToBeOlderIsTakenForYounger) {
  BeatLog log{.beat = 9, .starts = {{3, {300, 0}}, {7, {700, 5}}, {9, {900, 0}}}};
  EXPECT_EQ(log.BeatOf({299, 9}), 2u);
  EXPECT_EQ(log.BeatOf({300, 0}), 6u);  // beats 4 to 6 were missed
  EXPECT_EQ(log.BeatOf({700, 4}), 6u);
  EXPECT_EQ(log.BeatOf({700, 5}), 8u);
  EXPECT_EQ(log.BeatOf({900, 0}), 9u);
  EXPECT_EQ(BeatLog{}.BeatOf({1, 0}), 0u);
}

TEST(BeatLogTest, BeforeAndBeatOfAgree) {
  const BeatLog log{.beat = 9, .starts = {{3, {300, 0}}, {7, {700, 5}}, {9, {900, 0}}}};
  for (uint64_t beats = 1; beats <= 12; ++beats) {
    const std::optional<HybridTime> before = log.Before(beats);
    for (const int64_t ms : {0, 299, 300, 500, 700, 701, 899, 900, 1000}) {
      const HybridTime time{ms, 0};
      EXPECT_EQ(before.has_value() && time < *before, log.BeatOf(time) + beats <= log.beat);
    }
  }
}

TEST(BeatLogTest, NodesThatTellEachOtherKnowTheSame) {
  BeatLog a{.beat = 5, .starts = {{2, {200, 0}}, {5, {500, 0}}}};
  BeatLog b{.beat = 6, .starts = {{4, {400, 0}}, {6, {600, 0}}}};
  const BeatLog before = a;
  a.Learn(b, 4);
  b.Learn(before, 4);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.beat, 6u);
  EXPECT_EQ(a.starts, (std::map<uint64_t, HybridTime>{{4, {400, 0}}, {5, {500, 0}}, {6, {600, 0}}}));
  a.Learn(a, 0);
  EXPECT_TRUE(a.starts.empty());
}

}  // namespace
}  // namespace epic::kv_store
