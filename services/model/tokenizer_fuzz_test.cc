// Random vocabularies over random text: what Create accepts must encode and decode without a fault.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "services/model/tokenizer.h"

namespace epic {
namespace {

const std::vector<std::string> kAtoms = {"a", "b", "c", "Ġ", "Ċ", "▁", "é",    "Ã", "©",
                                         "1", "'", "s", "<", "|", ">", "🙂", " ", ""};

TokenizerSpec RandomSpec(Rng& rng) {
  TokenizerSpec spec;
  spec.kind = rng.Below(2) == 0 ? TokenizerKind::kBpe : TokenizerKind::kSpm;
  spec.pre = static_cast<PreTokenizer>(rng.Below(5));
  spec.nfc = rng.Below(2) == 0;
  spec.ignore_merges = rng.Below(2) == 0;
  spec.space_prefix = static_cast<SpacePrefix>(rng.Below(4));
  const auto add = [&](const std::string& text, TokenType type) {
    for (const std::string& known : spec.tokens) {
      if (known == text && rng.Below(200) != 0) return;
    }
    spec.tokens.push_back(text);
    spec.types.push_back(type);
    spec.scores.push_back(static_cast<float>(rng.Gaussian()));
  };
  for (const std::string& atom : kAtoms) {
    if (rng.Below(8) != 0) add(atom, TokenType::kNormal);
  }
  for (uint64_t i = rng.Below(20); i > 0; --i) {
    const std::string left = spec.tokens[rng.Below(spec.tokens.size())];
    const std::string right = spec.tokens[rng.Below(spec.tokens.size())];
    add(left + right, static_cast<TokenType>(rng.Below(40) == 0 ? 1 + rng.Below(6) : 1));
    spec.merges.emplace_back(left, right);
  }
  if (rng.Below(2) == 0) add("<|x|>", TokenType::kControl);
  if (rng.Below(3) != 0)
    spec.unknown = static_cast<uint32_t>(rng.Below(spec.tokens.size() + (rng.Below(9) == 0 ? 1 : 0)));
  if (rng.Below(3) == 0) spec.eos = static_cast<uint32_t>(rng.Below(spec.tokens.size()));
  if (rng.Below(30) == 0) spec.types.pop_back();
  return spec;
}

TEST(TokenizerFuzzTest, RandomVocabulariesEncodeRandomText) {
  const uint64_t seed = 31;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  size_t accepted = 0;
  for (int round = 0; round < 8000; ++round) {
    const auto tokenizer = Tokenizer::Create(RandomSpec(rng));
    if (!tokenizer.ok()) continue;
    ++accepted;
    for (int i = 0; i < 5; ++i) {
      std::string text;
      const std::vector<std::string> more = {" ", "\n", "<|x|>", "e\u0301", "ab", "\xFF"};
      for (uint64_t n = rng.Below(60); n > 0; --n) {
        text += rng.Below(4) == 0 ? more[rng.Below(more.size() - (rng.Below(20) == 0 ? 0 : 1))]
                                  : kAtoms[rng.Below(kAtoms.size())];
      }
      const TextRun runs[] = {{text, false}, {"<|x|>", true}, {text, rng.Below(2) == 0}};
      const auto ids = (*tokenizer)->Encode(runs);
      if (!ids.ok()) continue;
      for (const TokenId id : *ids) ASSERT_LT(id, (*tokenizer)->vocab_size());
      (void)(*tokenizer)->Decode(*ids, true);
      const auto user = (*tokenizer)->Encode(text);
      for (const TokenId id : *user) ASSERT_FALSE((*tokenizer)->IsControl(id)) << text;
    }
  }
  EXPECT_GT(accepted, 200u);
}

}  // namespace
}  // namespace epic
