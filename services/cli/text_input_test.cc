#include "services/cli/text_input.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using ::testing::HasSubstr;

TEST(TextInputTest, StandardInputAndFilesAreRead) {
  std::istringstream in("hello");
  ASSERT_OK_AND_ASSIGN(const std::string text, ReadText("-", in));
  EXPECT_EQ(text, "hello");
  testing::TempDir dir;
  std::ofstream(dir.path() + "/a.txt") << "from a file";
  ASSERT_OK_AND_ASSIGN(const std::string file, ReadText(dir.path() + "/a.txt", in));
  EXPECT_EQ(file, "from a file");
}

TEST(TextInputTest, WhatCannotBeReadIsExplained) {
  std::istringstream empty(" \n\t"), binary("ab\xff\x01");
  EXPECT_THAT(ReadText("/no/such/file", empty), testing::StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ReadText("/", empty),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("folder")));
  EXPECT_THAT(ReadText("-", empty),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
  EXPECT_THAT(ReadText("-", binary),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at byte 2")));
}

TEST(TextInputTest, InvalidUtf8IsFoundAtItsPlace) {
  EXPECT_EQ(FirstInvalidUtf8("aé漢🙂"), std::string_view::npos);
  EXPECT_EQ(FirstInvalidUtf8("a\xed\xa0\x80"), 1u) << "a surrogate is not UTF-8";
  EXPECT_EQ(FirstInvalidUtf8("é\xf0\x9f\x99"), 2u) << "a cut character is not UTF-8";
}

TEST(TextInputTest, ChunksAreBoundedWholeCharactersAndLoseOnlyWhiteSpace) {
  const std::string pieces[] = {"word", " ", "\n", "\n\n", "漢字", "🙂", "é", "averyveryverylongword"};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    std::string text;
    for (int i = 0; i < 400; ++i) text += pieces[rng.Below(std::size(pieces))];
    const size_t max_bytes = 64 + rng.Below(200);
    std::string joined;
    for (const std::string& chunk : SplitIntoChunks(text, max_bytes)) {
      EXPECT_LE(chunk.size(), max_bytes);
      EXPECT_EQ(FirstInvalidUtf8(chunk), std::string_view::npos);
      joined += chunk;
    }
    const auto without_space = [](std::string s) {
      std::erase_if(s, [](char c) { return c == ' ' || c == '\n'; });
      return s;
    };
    EXPECT_EQ(without_space(joined), without_space(text));
  }
}

TEST(TextInputTest, TheChunksThatShareRareWordsArePicked) {
  std::vector<TextChunk> chunks;
  for (int i = 0; i < 10; ++i) chunks.push_back({"f", "the common text of part " + std::to_string(i)});
  chunks[3].text += " patents are granted";
  chunks[7].text += " trademark rules";
  const auto picked = PickRelevant(chunks, "What of the patents and the trademark?", 2);
  ASSERT_EQ(picked.size(), 2u);
  EXPECT_THAT(picked[0].text, HasSubstr("patents"));
  EXPECT_THAT(picked[1].text, HasSubstr("trademark"));
  EXPECT_EQ(PickRelevant(picked, "x", 5).size(), 2u);
}

TEST(TextInputTest, TheFileNameCountsAndEqualTextsCountOnce) {
  const std::vector<TextChunk> chunks = {
      {"/a/GPL-2", "give copies of the work"},     {"/a/Apache-2.0", "give a copy of it"},
      {"/a/LGPL-2", "give copies of the work"},    {"/a/Artistic", "give notice with copies"},
      {"/a/BSD", "redistribution in binary form"}, {"/a/MPL", "the larger work"}};
  const auto picked = PickRelevant(chunks, "Which copies under the Apache License?", 1);
  ASSERT_EQ(picked.size(), 1u);
  EXPECT_EQ(picked[0].source, "/a/Apache-2.0");
  EXPECT_EQ(PickRelevant(chunks, "copies", 9).size(), 5u) << "an equal text is used once";
}

}  // namespace
}  // namespace epic
