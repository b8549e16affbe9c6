#include "services/model/utf8_stream.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

TEST(Utf8StreamTest, CharactersOfSeveralTokensComeOutWhole) {
  const std::string text = "a你好🙂👩‍👩‍👧é\n";
  Utf8Stream stream;
  std::string joined;
  for (const char byte : text) {
    const std::string piece = stream.Append(std::string_view(&byte, 1));
    EXPECT_FALSE(FindInvalidUtf8(piece).has_value());
    EXPECT_LE(stream.pending(), 3u);
    joined += piece;
  }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Utf8StreamTest, IllFormedBytesGiveOneReplacementPerMaximalSubpart) {
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), kReplacement + kReplacement + kReplacement);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF0\x80\x80\x41"), kReplacement + kReplacement + kReplacement + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x80\x41"), kReplacement + "A");
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), kReplacement + kReplacement);
  EXPECT_EQ(ReplaceInvalidUtf8("\xF4\x90\x80\x80"),
            kReplacement + kReplacement + kReplacement + kReplacement);
  EXPECT_EQ(ReplaceInvalidUtf8("\x80"), kReplacement);
}

TEST(Utf8StreamTest, AnIncompleteTailIsHeldAndFlushedAsOneReplacement) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Append("x\xF0\x9F\x99"), "x");
  EXPECT_EQ(stream.pending(), 3u);
  EXPECT_EQ(stream.Flush(), kReplacement);
  EXPECT_EQ(stream.pending(), 0u);
  EXPECT_EQ(stream.Append("\x82"), kReplacement);
}

TEST(Utf8StreamTest, AnyCutOfAnyBytesGivesTheSameText) {
  const uint64_t seed = 20240611;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  const std::vector<std::string> parts = {"a",        "é",        "你",   "🙂", "\xF0\x9F",
                                          "\xE2\x80", "\xED\xA0", "\xFF", "\x80"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (uint64_t i = rng.Below(12); i > 0; --i) bytes += parts[rng.Below(parts.size())];
    Utf8Stream stream;
    std::string joined;
    size_t position = 0;
    while (position < bytes.size()) {
      const size_t length = 1 + rng.Below(bytes.size() - position);
      joined += stream.Append(std::string_view(bytes).substr(position, length));
      position += length;
    }
    joined += stream.Flush();
    ASSERT_EQ(joined, ReplaceInvalidUtf8(bytes));
    ASSERT_FALSE(FindInvalidUtf8(joined).has_value());
  }
}

TEST(Utf8Test, EveryCodePointRoundTripsAndSurrogatesDoNot) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(code_point, text);
    const Utf8Step step = DecodeUtf8(text, 0);
    ASSERT_TRUE(step.valid);
    ASSERT_EQ(step.code_point, code_point);
    ASSERT_EQ(step.length, text.size());
    ASSERT_EQ(Utf8Length(text[0]), text.size());
  }
  EXPECT_EQ(FindInvalidUtf8("0123456789\xED\xBF\xBF"), 10u);
  EXPECT_EQ(FindInvalidUtf8("0123456789"), std::nullopt);
}

}  // namespace
}  // namespace epic
