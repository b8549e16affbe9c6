#include "services/engine/sampler.h"

#include <cmath>

#include <gtest/gtest.h>

namespace epic {
namespace {

std::vector<TokenId> Draw(const SamplingParams& params, uint32_t choice, size_t count,
                          const std::vector<float>& logits, const std::vector<TokenId>& prompt = {}) {
  Sampler sampler(params, choice, prompt);
  std::vector<float> scratch;
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(sampler.Next(logits, &scratch).token);
  return ids;
}

const std::vector<float> kLogits = {1.0f, 3.0f, 2.5f, 3.0f, -1.0f};

TEST(SamplerTest, GreedyTakesTheHighestLogitAndTheLowestIdAmongEquals) {
  EXPECT_EQ(Draw({.temperature = 0}, 0, 3, kLogits), (std::vector<TokenId>{1, 1, 1}));
}

TEST(SamplerTest, TheSameSeedGivesTheSameTokensAndChoiceIIsSeedPlusI) {
  const std::vector<TokenId> first = Draw({.seed = 9}, 0, 50, kLogits);
  EXPECT_EQ(Draw({.seed = 9}, 0, 50, kLogits), first);
  EXPECT_NE(Draw({.seed = 9}, 1, 50, kLogits), first);
  EXPECT_EQ(Draw({.seed = 9}, 1, 50, kLogits), Draw({.seed = 10}, 0, 50, kLogits));
}

TEST(SamplerTest, PenaltiesSeeWhatWasSaidAndRepetitionSeesThePromptToo) {
  EXPECT_EQ(Draw({.temperature = 0, .presence_penalty = 1}, 0, 4, kLogits),
            (std::vector<TokenId>{1, 3, 2, 1}));
  EXPECT_EQ(Draw({.temperature = 0, .frequency_penalty = 0.3f}, 0, 4, kLogits),
            (std::vector<TokenId>{1, 3, 1, 3}));
  EXPECT_EQ(Draw({.temperature = 0, .repetition_penalty = 2}, 0, 2, kLogits, {1, 3}),
            (std::vector<TokenId>{2, 1}));
  EXPECT_EQ(Draw({.temperature = 0}, 0, 2, kLogits, {1, 3}), (std::vector<TokenId>{1, 1}));
}

TEST(SamplerTest, BiasMovesTheChoiceAndNotTheLogprob) {
  Sampler sampler({.temperature = 0, .logit_bias = {{4, 50.0f}}, .top_logprobs = 2, .logprobs = true}, 0, {});
  std::vector<float> scratch;
  const GeneratedToken token = sampler.Next(kLogits, &scratch);
  EXPECT_EQ(token.token, 4u);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit);
  EXPECT_NEAR(token.logprob, -1.0 - std::log(sum), 1e-6);
  ASSERT_EQ(token.top_logprobs.size(), 2u);
  EXPECT_EQ(token.top_logprobs[0].token, 1u);
  EXPECT_EQ(token.top_logprobs[1].token, 3u);
}

}  // namespace
}  // namespace epic
