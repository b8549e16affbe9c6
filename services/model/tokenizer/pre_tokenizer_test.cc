#include "services/model/tokenizer/pre_tokenizer.h"

#include <memory>
#include <string>
#include <vector>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include "common/base/random.h"
#include "common/testing/paths.h"
#include "services/model/tokenizer/golden_test_util.h"
#include "services/model/tokenizer/nfc.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

// The patterns as published, run by PCRE2: the oracle. White space is spelled out, since PCRE2 also counts
// U+180E, which Unicode no longer does.
constexpr char kSpace[] =
    R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

std::string WithSpace(std::string pattern) {
  for (size_t at; (at = pattern.find("@")) != std::string::npos;) pattern.replace(at, 1, kSpace);
  return pattern;
}
const std::string kGpt2 =
    WithSpace(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^@\p{L}\p{N}]+|[@]+(?![^@])|[@]+)");
const std::string kRest = WithSpace(R"(| ?[^@\p{L}\p{N}]+[\r\n]*|[@]*[\r\n]+|[@]+(?![^@])|[@]+)");
const std::string kLead = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";

class Pcre {
 public:
  explicit Pcre(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                          &error, &offset, nullptr);
    EXPECT_NE(code_, nullptr) << offset;
    data_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Pcre() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  bool Matches(std::string_view text) const {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data_, nullptr) >
           0;
  }
  // The ends of the pieces of `text`, shifted by `base`.
  void Split(std::string_view text, size_t base, std::vector<size_t>& ends) const {
    for (size_t position = 0; position < text.size();) {
      const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), position,
                                    PCRE2_ANCHORED, data_, nullptr);
      ASSERT_GT(found, 0) << text;
      position = pcre2_get_ovector_pointer(data_)[1];
      ends.push_back(base + position);
    }
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* data_ = nullptr;
};

std::vector<size_t> OracleEnds(PreTokenizer pre, std::string_view text) {
  static const Pcre gpt2(kGpt2);
  static const Pcre qwen2(kLead + kRest);
  static const Pcre llama(kLead + "{1,3}" + kRest);
  static const Pcre digits_apart(R"(\p{N}|\P{N}+)");
  std::vector<size_t> ends;
  if (pre != PreTokenizer::kSmolLm) {
    (pre == PreTokenizer::kGpt2 ? gpt2 : pre == PreTokenizer::kQwen2 ? qwen2 : llama).Split(text, 0, ends);
    return ends;
  }
  std::vector<size_t> parts;
  digits_apart.Split(text, 0, parts);
  size_t begin = 0;
  for (const size_t end : parts) {
    gpt2.Split(text.substr(begin, end - begin), begin, ends);
    begin = end;
  }
  return ends;
}

std::vector<size_t> ScannerEnds(PreTokenizer pre, std::string_view text) {
  std::vector<size_t> ends;
  for (size_t position = 0; position < text.size();) {
    position = PieceEnd(pre, text, position);
    ends.push_back(position);
  }
  return ends;
}

constexpr PreTokenizer kAll[] = {PreTokenizer::kGpt2, PreTokenizer::kSmolLm, PreTokenizer::kQwen2,
                                 PreTokenizer::kLlamaBpe};

TEST(PreTokenizerTest, PiecesEqualThePatternsOnTheCorpus) {
  for (const auto& item : testing::ReadGolden("corpus.json")) {
    const std::string text = item;
    for (const PreTokenizer pre : kAll) EXPECT_EQ(ScannerEnds(pre, text), OracleEnds(pre, text)) << item;
  }
}

TEST(PreTokenizerTest, PiecesEqualThePatternsOnRandomText) {
  const uint64_t seed = 42;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  const std::vector<std::string> parts = {
      " ", " ", "\n", "\r",     "\t",     "a",      "S", "s",  "l",    "L", "'",      "'",  "1",
      "2", "!", "é",  "\u0301", "\u00a0", "\u3000", "ſ", "你", "🙂", "½", "\u180e", "re", "VE"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t i = 1 + rng.Below(14); i > 0; --i) text += parts[rng.Below(parts.size())];
    for (const PreTokenizer pre : kAll) ASSERT_EQ(ScannerEnds(pre, text), OracleEnds(pre, text)) << text;
  }
}

TEST(PreTokenizerTest, EveryCodePointHasTheClassThatThePatternsSee) {
  // The two libraries follow versions of Unicode that differ by a few new letters.
  const Pcre unassigned(R"(\p{Cn})");
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string character;
    AppendUtf8(c, character);
    if (unassigned.Matches(character)) continue;
    std::string text = "a ";
    AppendUtf8(c, text);
    text += "a1";
    AppendUtf8(c, text);
    ASSERT_EQ(ScannerEnds(PreTokenizer::kQwen2, text), OracleEnds(PreTokenizer::kQwen2, text))
        << static_cast<uint32_t>(c);
  }
}

TEST(NfcTest, KnownFormsComeOut) {
  EXPECT_EQ(NormalizeNfc("e\u0301"), "\u00e9");
  EXPECT_EQ(NormalizeNfc("a\u0307\u0323"), "\u1ea1\u0307");
  EXPECT_EQ(NormalizeNfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(NormalizeNfc("\u212b"), "\u00c5");
  EXPECT_EQ(NormalizeNfc("\u0958"), "\u0915\u093c");  // excluded from composition
  EXPECT_EQ(NormalizeNfc("plain\n"), "plain\n");
  EXPECT_EQ(NormalizeNfc(""), "");
}

}  // namespace
}  // namespace epic
