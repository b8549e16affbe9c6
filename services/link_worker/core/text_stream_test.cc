#include "services/link_worker/core/text_stream.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

using ::testing::ElementsAre;

std::string RunWhole(std::vector<std::string> pieces, std::vector<std::string> stops) {
  ChoiceText text(stops);
  std::string out;
  for (const std::string& piece : pieces) {
    if (text.stopped()) break;
    out += text.Push(piece, std::nullopt).text;
  }
  if (!text.stopped()) out += text.Flush().text;
  return out;
}

TEST(StopMatcherTest, AStopAcrossBordersNeverLeaksItsHead) {
  StopMatcher matcher({"DEFG"});
  EXPECT_EQ(matcher.Push("ABCD"), "ABC");
  EXPECT_EQ(matcher.Push("EF"), "");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.Push("GHI"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.Push("XYZ"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, AHeadThatCameToNothingIsFlushedAtTheEnd) {
  StopMatcher matcher({"DEFG"});
  EXPECT_EQ(matcher.Push("ABCDEF"), "ABC");
  EXPECT_EQ(matcher.Flush(), "DEF");
}

TEST(StopMatcherTest, OverlappingHeadsAreHeldToo) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("a"), "");
  EXPECT_EQ(matcher.Push("a"), "");
  EXPECT_EQ(matcher.Push("a"), "a");
  EXPECT_EQ(matcher.Push("b"), "");
  EXPECT_TRUE(matcher.matched());
}

TEST(StopMatcherTest, TheStopThatEndsFirstCounts) {
  EXPECT_EQ(RunWhole({"xabcd"}, {"abcd", "bc"}), "xa");
  EXPECT_EQ(RunWhole({"x", "a", "b", "c", "d"}, {"abcd", "bc"}), "xa");
  EXPECT_EQ(RunWhole({"xabc"}, {"bc", "abc"}), "x");
}

// The whole text read byte by byte: the first end of any stop cuts.
std::string Reference(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopMatcherTest, AgreesWithAPlainSearchHoweverTheTextIsCut) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  const std::vector<std::string> alphabet = {"a", "b", "\xC3\xA9", "\xF0\x9F\x99\x82"};
  const auto random_text = [&](uint64_t most) {
    std::string text;
    for (uint64_t i = 1 + rng.Below(most); i > 0; --i) text += alphabet[rng.Below(alphabet.size())];
    return text;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(24);
    std::vector<std::string> stops;
    for (uint64_t i = 1 + rng.Below(4); i > 0; --i) stops.push_back(random_text(4));
    std::vector<std::string> cut;  // at byte borders, inside characters too
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + rng.Below(5);
      cut.push_back(text.substr(at, length));
      at += length;
    }
    // Every prefix that a client has seen is whole characters and a prefix of the right answer.
    const std::string expected = Reference(text, stops);
    ChoiceText stream(stops);
    std::string seen;
    for (const std::string& bytes : cut) {
      if (stream.stopped()) break;
      seen += stream.Push(bytes, std::nullopt).text;
      ASSERT_TRUE(expected.starts_with(seen));
      ASSERT_FALSE(FindInvalidUtf8(seen).has_value());
    }
    if (!stream.stopped()) seen += stream.Flush().text;
    ASSERT_EQ(seen, expected) << text;
  }
}

LinkLogprob Of(std::string bytes) { return {.bytes = std::move(bytes), .logprob = -1, .top = {}}; }
std::vector<std::string> BytesOf(const ChoiceText::Piece& piece) {
  std::vector<std::string> bytes;
  for (const LinkLogprob& logprob : piece.logprobs) bytes.push_back(logprob.bytes);
  return bytes;
}

TEST(ChoiceTextTest, LogprobsComeWithTheTextThatEndsTheirTokens) {
  ChoiceText text({});
  EXPECT_TRUE(text.Push("\xF0\x9F", Of("\xF0\x9F")).empty());
  const ChoiceText::Piece piece = text.Push("\x99\x82!", Of("\x99\x82!"));
  EXPECT_EQ(piece.text, "\xF0\x9F\x99\x82!");
  EXPECT_THAT(BytesOf(piece), ElementsAre("\xF0\x9F", "\x99\x82!"));
  EXPECT_THAT(BytesOf(text.Push("", Of(""))), ElementsAre(""));
}

TEST(ChoiceTextTest, LogprobsOfAStopStringAreNotReported) {
  ChoiceText text({"STOP"});
  EXPECT_THAT(BytesOf(text.Push("ab", Of("ab"))), ElementsAre("ab"));
  EXPECT_THAT(BytesOf(text.Push("cST", Of("cST"))), ElementsAre());
  const ChoiceText::Piece piece = text.Push("OP!", Of("OP!"));
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(piece.text, "");
  EXPECT_THAT(BytesOf(piece), ElementsAre("cST"));
}

TEST(ChoiceTextTest, HeldBytesAndLogprobsAreFlushedAtTheEnd) {
  ChoiceText text({"STOP"});
  EXPECT_EQ(text.Push("xST", Of("xST")).text, "x");
  EXPECT_EQ(text.Push("\xE2\x80", Of("\xE2\x80")).text, "");
  const ChoiceText::Piece piece = text.Flush();
  EXPECT_EQ(piece.text, "ST\xEF\xBF\xBD");
  EXPECT_THAT(BytesOf(piece), ElementsAre("xST", "\xE2\x80"));
}

}  // namespace
}  // namespace epic
