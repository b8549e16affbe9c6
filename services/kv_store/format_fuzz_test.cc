// Mutated bytes into every decoder of this folder's formats: an error or a value, never a crash, and never a
// value that does not encode to what was read. Checksums are put right in half of the rounds, so that what
// lies behind them is reached. Prints its seed; more rounds run under the sanitizers.
#include <cstdio>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/extents/extent_header.h"
#include "services/kv_store/testing/mutate_bytes.h"

namespace epic::kv_store {
namespace {

constexpr int kRounds = 20'000;

std::string Golden(const std::string& name) {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() + "/services/kv_store/golden/" + name);
}

// Puts a CRC over [0, at) to `at`.
void MendCrc(std::string* bytes, size_t at) {
  if (bytes->size() < at + sizeof(uint32_t)) return;
  const uint32_t crc = Crc32c(0, AsBytes(*bytes).first(at));
  std::memcpy(bytes->data() + at, &crc, sizeof crc);
}

TEST(FormatFuzzTest, DecodersSurviveHostileBytes) {
  const std::string entries[] = {Golden("object_entry.v1.bin"), Golden("object_entry.v2.bin")};
  const std::string header = Golden("extent_header.v1.bin");
  const std::string tombstone = EncodeTombstone(
      {.at = {1'700'000'000'123, 7}, .cause = RemovalCause::kExpired, .created_at_ms = 1'600'000'000'000});
  uint64_t accepted = 0;
  for (const uint64_t seed : {21, 22, 23}) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    Rng rng(seed);
    for (int round = 0; round < kRounds; ++round) {
      const bool mend = rng.Below(2) == 0;
      std::string bytes = MutateBytes(entries[rng.Below(2)], &rng);
      if (mend && bytes.size() > 4) MendCrc(&bytes, bytes.size() - 4);
      if (const auto entry = DecodeObjectEntry(AsBytes(bytes)); entry.ok()) {
        ++accepted;
        EXPECT_EQ(EncodeObjectEntry(*entry), bytes);
      }
      bytes = MutateBytes(tombstone, &rng);
      if (mend && bytes.size() > 4) MendCrc(&bytes, bytes.size() - 4);
      if (const auto decoded = DecodeTombstone(AsBytes(bytes)); decoded.ok()) {
        ++accepted;
        EXPECT_EQ(EncodeTombstone(*decoded), bytes);
      }
      bytes = MutateBytes(header, &rng);
      if (mend) MendCrc(&bytes, 20);
      if (const auto decoded = DecodeExtentHeader(AsBytes(bytes)); decoded.ok()) {
        ++accepted;
        EXPECT_EQ(EncodeExtentHeader(*decoded), bytes.substr(0, 4096));
      }
      RowKey(ParseContextKey(bytes.substr(0, rng.Below(64))).value_or(ContextKey{}));
      ParseObjectContextKey(bytes.substr(0, rng.Below(128))).IgnoreError();
    }
  }
  EXPECT_GT(accepted, 1000u) << "the rounds do not get behind the checksums";
}

}  // namespace
}  // namespace epic::kv_store
