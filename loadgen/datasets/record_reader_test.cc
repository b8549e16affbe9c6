#include "loadgen/datasets/record_reader.h"

#include <fstream>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic::loadgen {
namespace {

using ::epic::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RecordReaderTest : public ::testing::Test {
 protected:
  std::string Plain(std::string_view text) {
    const std::string path = dir_.path() + "/data" + std::to_string(files_++);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string Gzip(std::string_view text) {
    const std::string path = dir_.path() + "/data" + std::to_string(files_++) + ".gz";
    const gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
    EXPECT_EQ(gzclose(file), Z_OK);
    return path;
  }
  // "line: dump" of each record, then the error if there is one.
  static std::vector<std::string> ReadAll(const std::string& path, const RecordLimits& limits = {}) {
    std::vector<std::string> all;
    const auto reader = RecordReader::Open(path, limits);
    if (!reader.ok()) return {reader.status().ToString()};
    while (true) {
      const absl::StatusOr<std::optional<DataRecord>> record = (*reader)->Next();
      if (!record.ok()) {
        EXPECT_EQ((*reader)->Next().status(), record.status()) << "an error stays";
        all.push_back(record.status().ToString());
        return all;
      }
      if (!record->has_value()) return all;
      all.push_back(std::to_string((*record)->line) + ": " + (*record)->value.dump());
    }
  }

  testing::TempDir dir_;
  int files_ = 0;
};

constexpr std::string_view kLines = "\n{\"a\": 1}\r\n\n  {\"b\": \"x\\\"}{[\"}\n{\"c\": null}";
constexpr std::string_view kArray =
    " [\n  {\n    \"a\": 1\n  },\n\n  {\"b\": \"x\\\"}{[\\\\\"}\n, {\"c\": [{}, []]}\n]\n ";

TEST_F(RecordReaderTest, LinesAreReadPlainAndCompressed) {
  const std::vector<std::string> expected = {"2: {\"a\":1}", "4: {\"b\":\"x\\\"}{[\"}", "5: {\"c\":null}"};
  EXPECT_EQ(ReadAll(Plain(kLines)), expected);
  EXPECT_EQ(ReadAll(Gzip(kLines)), expected);
}

TEST_F(RecordReaderTest, AnArrayIsReadPlainAndCompressed) {
  const std::vector<std::string> expected = {"2: {\"a\":1}", "6: {\"b\":\"x\\\"}{[\\\\\"}",
                                             "7: {\"c\":[{},[]]}"};
  EXPECT_EQ(ReadAll(Plain(kArray)), expected);
  EXPECT_EQ(ReadAll(Gzip(kArray)), expected);
}

TEST_F(RecordReaderTest, EmptyFilesHoldNoRecord) {
  EXPECT_TRUE(ReadAll(Plain("")).empty());
  EXPECT_TRUE(ReadAll(Plain(" \n \n")).empty());
  EXPECT_TRUE(ReadAll(Plain("[ ]")).empty());
  EXPECT_TRUE(ReadAll(Gzip("")).empty());
}

TEST_F(RecordReaderTest, WhatIsWrongIsToldWithItsLine) {
  const struct {
    std::string_view text, line, message;
  } kCases[] = {
      {"{\"a\": 1}\nnonsense\n", "line 2:", "must be a JSON object"},
      {"{\"a\": 1}\n{\"a\": \n", "line 2:", "no valid JSON"},
      {"{\"a\": 1} trailing\n", "line 1:", "no valid JSON"},
      {"{\"a\": \"\xff\"}\n", "line 1:", "no valid JSON"},
      {"7\n", "line 1:", "must be a JSON object"},
      {"[\n7]", "line 2:", "must be a JSON object"},
      {"[{\"a\": 1}\n{\"b\": 1}]", "line 2:", "comma"},
      {"[{\"a\": 1},\n]", "line 2:", "must be a JSON object"},
      {"[{\"a\": 1}]\n{\"b\": 1}", "line 2:", "behind the end"},
      {"[\n{\"a\": 1},\n\n{\"b\": \"", "line 4:", "cut off"},
      {"[\n{\"a\": 1},\n", "line 3:", "cut off"},
      {"[{\"a\": 1}\n", "line 2:", "cut off"},
      {"[", "line 1:", "cut off"},
      {"[{\"a\": }]", "line 1:", "no valid JSON"},
      {"[{\"a\": [}]}]", "line 1:", "no valid JSON"},
  };
  for (const auto& test : kCases) {
    SCOPED_TRACE(std::string(test.text));
    const std::vector<std::string> all = ReadAll(Plain(test.text));
    ASSERT_FALSE(all.empty());
    EXPECT_THAT(all.back(),
                AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr(test.line), HasSubstr(test.message)));
  }
}

TEST_F(RecordReaderTest, LimitsHoldForRecordsAndTheWholeFile) {
  const std::string long_line = "{\"a\": 1}\n{\"a\": \"" + std::string(5000, 'x') + "\"}\n";
  const std::string long_element = "[{\"a\": 1},\n{\"a\": \"" + std::string(5000, 'x') + "\"}]";
  for (const std::string& path : {Plain(long_line), Plain(long_element), Gzip(long_line)}) {
    EXPECT_THAT(ReadAll(path, {.record_bytes = 1000}).back(),
                AllOf(HasSubstr("line 2:"), HasSubstr("more than 1000 bytes")));
  }
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "{\"a\": 1}\n";
  EXPECT_THAT(ReadAll(Gzip(many), {.total_bytes = 200'000}).back(), HasSubstr("more than 200000 bytes"));
}

TEST_F(RecordReaderTest, ACompressedFileThatIsCutOffIsAnErrorAndNeverASilentEnd) {
  std::string text;
  Rng rng(5);
  for (int i = 0; i < 3000; ++i) text += "{\"n\": " + std::to_string(rng.Next()) + "}\n";
  const std::string whole = testing::ReadFileOrDie(Gzip(text));
  for (const size_t size : {whole.size() - 1, whole.size() - 8, whole.size() / 2, size_t{100}, size_t{20}}) {
    SCOPED_TRACE(size);
    const std::vector<std::string> all = ReadAll(Plain(std::string_view(whole).substr(0, size)));
    ASSERT_FALSE(all.empty());
    EXPECT_THAT(all.back(), HasSubstr("INVALID_ARGUMENT"));
  }
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 0x55);
  EXPECT_THAT(ReadAll(Plain(flipped)).back(), HasSubstr("INVALID_ARGUMENT"));
}

TEST_F(RecordReaderTest, DeepNestingNeitherRecursesNorCrashes) {
  const std::string deep = "{\"a\": " + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  ASSERT_OK_AND_ASSIGN(const auto reader, RecordReader::Open(Plain(deep)));
  ASSERT_OK_AND_ASSIGN(const std::optional<DataRecord> record, reader->Next());
  EXPECT_TRUE(record.has_value() && record->value.contains("a"));
  EXPECT_THAT(ReadAll(Plain("{\"a\": " + std::string(300'000, '['))).back(), HasSubstr("no valid JSON"));
}

TEST_F(RecordReaderTest, MissingFilesAndFoldersAreRefused) {
  EXPECT_THAT(RecordReader::Open(dir_.path() + "/none"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(RecordReader::Open(dir_.path()), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FileDigest(dir_.path() + "/none"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(FileDigest(dir_.path()).ok());
}

TEST_F(RecordReaderTest, TheDigestIsThatOfTheBytesOnDisk) {
  ASSERT_OK_AND_ASSIGN(const Digest digest, FileDigest(Plain("abc")));
  EXPECT_EQ(digest.Hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace epic::loadgen
