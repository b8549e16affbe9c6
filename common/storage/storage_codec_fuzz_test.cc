// Random and mutated bytes into every decoder of stored formats: an error or a value, never a crash, and
// never a value that does not encode to what was read. Prints its seed; more rounds run under the sanitizers.
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "common/base/crc32c.h"
#include "common/base/random.h"
#include "common/storage/object_codec.h"
#include "common/storage/record_codec.h"
#include "common/testing/mutate.h"
#include "common/testing/paths.h"

namespace epic {
namespace {

constexpr int kRounds = 30'000;
constexpr size_t kHeaderBytes = 144;

std::string Golden(const std::string& name) {
  return epic::testing::ReadFileOrDie(epic::testing::SourceDir() + "/common/storage/golden/" + name);
}

TEST(StorageCodecFuzzTest, DecodersSurviveHostileBytes) {
  for (const uint64_t seed : {11, 12, 13}) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    Rng rng(seed);
    const std::string object = Golden("object_small.v1.bin");
    const std::string record = Golden("record.v1.bin");
    const std::string tokens = Golden("tokens.v1.bin");
    for (int round = 0; round < kRounds; ++round) {
      std::string bytes = testing::Mutate(object, &rng);
      if (bytes.size() >= kHeaderBytes && rng.Below(2) == 0) {
        const uint32_t crc = Crc32c(0, AsBytes(bytes).first(kHeaderBytes - 4));
        std::memcpy(bytes.data() + kHeaderBytes - 4, &crc, 4);
      }
      if (const auto decoded = DecodeObject(AsBytes(bytes)); decoded.ok()) {
        EXPECT_EQ(EncodeHead(decoded->head), bytes.substr(0, HeadBytes(decoded->head.layout)));
      }
      bytes = testing::Mutate(rng.Below(2) == 0 ? record : tokens, &rng);
      if (bytes.size() >= 4 && rng.Below(2) == 0) {
        const uint32_t crc = Crc32c(0, AsBytes(bytes).first(bytes.size() - 4));
        std::memcpy(bytes.data() + bytes.size() - 4, &crc, 4);
      }
      if (const auto decoded = DecodeRecord(AsBytes(bytes)); decoded.ok()) {
        EXPECT_TRUE(ValidateRecord(*decoded).ok());
      }
      if (const auto decoded = DecodeTokens(AsBytes(bytes)); decoded.ok()) {
        EXPECT_EQ(EncodeTokens(*decoded), bytes);
      }
    }
  }
}

}  // namespace
}  // namespace epic
