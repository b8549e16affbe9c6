#include "kernels/sampling/sampling.h"

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace epic {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t count, Rng* rng) {
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(3 * rng->Gaussian());
  return logits;
}

// Independent reference: every probability, in long double, without sorting.
std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  long double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<long double>(logit) / temperature);
  std::vector<double> out;
  for (const float logit : logits) {
    out.push_back(static_cast<double>(std::exp(static_cast<long double>(logit) / temperature) / total));
  }
  return out;
}

// How many tokens come before `id` in the order of probability, then of id.
size_t RankOf(const std::vector<float>& logits, size_t id) {
  size_t rank = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    rank += logits[i] > logits[id] || (logits[i] == logits[id] && i < id) ? 1 : 0;
  }
  return rank;
}

TEST(SamplingTest, TheHighestLogitWinsAndTheLowestIdAmongEquals) {
  EXPECT_EQ(ArgMax(std::vector<float>{1, 5, 5, 2}), 1u);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInfinity, -3}), 1u);
  EXPECT_EQ(ArgMax(std::vector<float>{0}), 0u);
}

TEST(SamplingTest, NanAndPlusInfinityAreNoticedAndMinusInfinityIsAllowed) {
  EXPECT_TRUE(AllFiniteOrMinusInfinity(std::vector<float>{1, -kInfinity}));
  EXPECT_FALSE(AllFiniteOrMinusInfinity(std::vector<float>{1, std::nanf("")}));
  EXPECT_FALSE(AllFiniteOrMinusInfinity(std::vector<float>{1, kInfinity}));
  EXPECT_FALSE(AllFiniteOrMinusInfinity(std::vector<float>{-kInfinity, -kInfinity}));
}

TEST(SamplingTest, LogProbabilitiesEqualTheReference) {
  Rng rng(1);
  std::vector<float> logits = RandomLogits(500, &rng);
  for (float& logit : logits) logit += 300;  // exp would overflow without the shift
  std::vector<float> shifted = logits;
  for (float& logit : shifted) logit -= 300;
  const std::vector<double> expected = Softmax(shifted, 1.0);
  std::vector<float> out(logits.size());
  LogSoftmax(logits, out);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], std::log(expected[i]), 1e-5);
  const std::vector<TokenLogProb> top = TopLogProbs(logits, 5);
  ASSERT_EQ(top.size(), 5u);
  for (size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(RankOf(logits, top[i].id), i);
    EXPECT_NEAR(top[i].log_prob, std::log(expected[top[i].id]), 1e-5);
  }
  EXPECT_EQ(TopLogProbs(logits, 1000).size(), logits.size());
}

TEST(SamplingTest, PenaltiesAndBiasChangeOnlyTheNamedTokens) {
  std::vector<float> logits = {2, -2, 1, 4, 3};
  const std::vector<TokenCount> counts = {
      {.id = 0, .in_output = 3}, {.id = 1, .in_prompt = 1}, {.id = 3, .in_output = 1, .in_prompt = 2}};
  ApplyPenalties({.presence = 0.5f, .frequency = 0.25f, .repetition = 2}, counts, logits);
  EXPECT_EQ(logits, (std::vector<float>{1 - 1.25f, -4, 1, 2 - 0.75f, 3}));
  ApplyBias(std::vector<LogitBias>{{2, 10.0f}, {4, -kInfinity}}, logits);
  EXPECT_EQ(logits[2], 11);
  EXPECT_EQ(logits[4], -kInfinity);
  EXPECT_EQ(ArgMax(logits), 2u);
}

TEST(SamplingTest, FiltersKeepExactlyTheSetTheReferenceKeeps) {
  Rng rng(7);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits = RandomLogits(1 + rng.Below(60), &rng);
    FilterParams params;
    params.temperature = static_cast<float>(0.2 + 2 * rng.Uniform());
    if (rng.Below(2) == 0) params.top_k = static_cast<uint32_t>(1 + rng.Below(20));
    if (rng.Below(2) == 0) params.top_p = static_cast<float>(0.05 + 0.9 * rng.Uniform());
    if (rng.Below(2) == 0) params.min_p = static_cast<float>(0.5 * rng.Uniform());
    const std::vector<Candidate> kept = FilterCandidates(logits, params);

    const std::vector<double> p = Softmax(logits, params.temperature);
    std::vector<size_t> by_rank(logits.size());
    for (size_t id = 0; id < logits.size(); ++id) by_rank[RankOf(logits, id)] = id;
    const size_t limit = params.top_k == 0 ? p.size() : std::min<size_t>(params.top_k, p.size());
    double in_top_k = 0;
    for (size_t i = 0; i < limit; ++i) in_top_k += p[by_rank[i]];
    std::vector<size_t> expected;
    double reached = 0;
    for (size_t i = 0; i < limit && (params.top_p == 1 || reached < params.top_p); ++i) {
      if (p[by_rank[i]] >= p[by_rank[0]] * params.min_p) expected.push_back(by_rank[i]);
      reached += p[by_rank[i]] / in_top_k;
    }
    ASSERT_EQ(kept.size(), expected.size()) << "round " << round;
    double total = 0;
    for (const size_t id : expected) total += p[id];
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i].id, expected[i]);
      EXPECT_NEAR(kept[i].probability, p[expected[i]] / total, 1e-6);
    }
  }
}

TEST(SamplingTest, ADrawEqualsOneFromTheSortedAndFilteredVocabulary) {
  Rng rng(9);
  for (int round = 0; round < 2000; ++round) {
    // Around the sizes at which the head of the order is found without sorting all.
    const size_t size = round % 10 == 0 ? 20000 + rng.Below(3000) : 1 + rng.Below(700);
    std::vector<float> logits = RandomLogits(size, &rng);
    if (rng.Below(4) == 0) {
      for (float& logit : logits) logit = std::floor(logit);  // many equals
    }
    if (rng.Below(4) == 0) logits[rng.Below(size)] = -kInfinity;
    FilterParams params;
    params.temperature = static_cast<float>(0.1 + 4 * rng.Uniform());
    if (rng.Below(3) == 0) params.top_k = static_cast<uint32_t>(1 + rng.Below(900));
    if (rng.Below(3) == 0) params.top_p = static_cast<float>(0.02 + 0.97 * rng.Uniform());
    if (rng.Below(3) == 0) params.min_p = static_cast<float>(0.3 * rng.Uniform());
    if (!AllFiniteOrMinusInfinity(logits)) continue;
    const std::vector<Candidate> candidates = FilterCandidates(logits, params);
    Rng replay = rng;
    const double uniform = replay.Uniform();
    // A draw within rounding of a border may fall on either side.
    const uint32_t drawn = SampleToken(logits, params, &rng);
    const uint32_t before = Draw(candidates, std::max(0.0, uniform - 1e-12));
    const uint32_t after = Draw(candidates, std::min(1.0, uniform + 1e-12));
    ASSERT_TRUE(drawn == before || drawn == after)
        << "round " << round << ": " << drawn << ", not " << before;
    ASSERT_EQ(rng.Next(), replay.Next());
  }
}

TEST(SamplingTest, TheBestTokensAreThoseOfASortWhateverTheSize) {
  Rng rng(10);
  for (const size_t size : {1u, 63u, 64u, 65u, 127u, 128u, 129u, 1000u, 20000u}) {
    std::vector<float> logits = RandomLogits(size, &rng);
    for (size_t i = 0; i < size; i += 3) logits[i] = std::floor(logits[i]);
    for (const size_t count : {0u, 1u, 2u, 20u, 100u}) {
      const std::vector<TokenLogProb> top = TopLogProbs(logits, count);
      ASSERT_EQ(top.size(), std::min(count, size));
      for (size_t i = 0; i < top.size(); ++i)
        ASSERT_EQ(RankOf(logits, top[i].id), i) << size << ", " << count;
    }
  }
}

TEST(SamplingTest, ATemperatureOfZeroIsGreedyAndTakesNoNumber) {
  Rng rng(5);
  Rng untouched(5);
  EXPECT_EQ(SampleToken(std::vector<float>{1, 9, 9}, {.temperature = 0}, &rng), 1u);
  EXPECT_EQ(rng.Next(), untouched.Next());
}

TEST(SamplingTest, BannedTokensAreNeverDrawn) {
  Rng rng(6);
  const std::vector<float> logits = {-kInfinity, 0, -kInfinity, 0, -kInfinity};
  for (int i = 0; i < 200; ++i) {
    const uint32_t id = SampleToken(logits, {.temperature = 1}, &rng);
    EXPECT_TRUE(id == 1 || id == 3);
  }
  EXPECT_NE(Draw(FilterCandidates(logits, {}), 1.0), 4u);
}

TEST(SamplingTest, DrawsFollowTheProbabilitiesAndReplayBySeed) {
  const std::vector<float> logits = {0, 1, 2, -1};
  const std::vector<double> p = Softmax(logits, 0.7);
  constexpr int kDraws = 40000;
  std::map<uint32_t, int> counts;
  Rng rng(8);
  Rng replay(8);
  for (int i = 0; i < kDraws; ++i) {
    const uint32_t id = SampleToken(logits, {.temperature = 0.7f}, &rng);
    ASSERT_EQ(id, SampleToken(logits, {.temperature = 0.7f}, &replay));
    ++counts[id];
  }
  // Five standard deviations.
  for (size_t id = 0; id < p.size(); ++id) {
    EXPECT_NEAR(counts[id], kDraws * p[id], 5 * std::sqrt(kDraws * p[id] * (1 - p[id])));
  }
}

}  // namespace
}  // namespace epic
