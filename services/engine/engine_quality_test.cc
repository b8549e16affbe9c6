// Oracle 2 on the default model's real weights: over 50 prompts, quality does not fall as more rows are
// recomputed.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::Context;
using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};

// KL(full || strategy) of the first token, over prompts of three chunks in random order with a question.
std::vector<double> Divergences(Engine* engine, const std::vector<std::vector<PromptPiece>>& prompts,
                                const std::vector<std::vector<float>>& full, const LinkStrategy& strategy) {
  std::vector<double> kl;
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto score = Score(engine, prompts[i], strategy, {0});
    EXPECT_OK(score.status());
    kl.push_back(testing::KlDivergence(full[i], (*score)->logits[0]));
  }
  return kl;
}

// Mean of a - b and its standard error.
std::pair<double, double> PairedDifference(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  double sum = 0, squares = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] - b[i];
    squares += (a[i] - b[i]) * (a[i] - b[i]);
  }
  const double mean = sum / n;
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean) / n)};
}

// Oracle 2. Every step of each series is compared with the one before, and the last with the first.
TEST(EngineQualityTest, QualityDoesNotFallAsMoreRowsAreRecomputed) {
  constexpr size_t kPrompts = 50;
  const std::optional<std::string> path = testing::DefaultModelPath();
  if (!path.has_value()) GTEST_SKIP() << "the default model is not there: run deploy/fetch_model.sh";
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Model::Load(*path));
  EngineOptions options;
  options.prefix_cache_bytes = 0;
  const std::unique_ptr<Engine> engine = testing::MakeEngine(model, options);
  const std::vector<TokenId> text = testing::EnglishIds();
  std::vector<std::vector<PromptPiece>> prompts;
  std::vector<std::vector<float>> full;
  Rng rng(5);
  for (size_t i = 0; i < kPrompts; ++i) {
    std::vector<PromptPiece> pieces;
    const auto cut = [&](size_t length) {
      const size_t begin = rng.Below(text.size() - length);
      return std::vector<TokenId>(text.begin() + begin, text.begin() + begin + length);
    };
    pieces.push_back(Text(cut(6)));
    for (int chunk = 0; chunk < 3; ++chunk) {
      ASSERT_OK_AND_ASSIGN(PromptPiece piece, Context(engine.get(), cut(40 + rng.Below(30))));
      pieces.push_back(std::move(piece));
    }
    pieces.push_back(Text(cut(12)));
    ASSERT_OK_AND_ASSIGN(const auto score, Score(engine.get(), pieces, kFull, {0}));
    full.push_back(score->logits[0]);
    prompts.push_back(std::move(pieces));
  }
  const std::vector<std::vector<const char*>> series = {
      {"naive", "legolink-4", "legolink-16", "legolink-70"},
      {"cacheblend-0.05", "cacheblend-0.15", "cacheblend-0.5", "cacheblend-1.0"},
      {"naive", "query-guided-4", "query-guided-16", "query-guided-70"},
  };
  for (const std::vector<const char*>& names : series) {
    std::vector<std::vector<double>> kl;
    for (const char* name : names) {
      ASSERT_OK_AND_ASSIGN(const LinkStrategy strategy, ParseStrategy(name));
      kl.push_back(Divergences(engine.get(), prompts, full, strategy));
      double sum = 0;
      for (const double value : kl.back()) sum += value;
      std::printf("%s: KL %.4g\n", name, sum / kPrompts);
    }
    for (size_t i = 1; i < kl.size(); ++i) {
      const auto [worse, error] = PairedDifference(kl[i], kl[i - 1]);
      EXPECT_LE(worse, 2 * error + 1e-4) << names[i] << " after " << names[i - 1];
    }
    EXPECT_LT(PairedDifference(kl.back(), kl.front()).first, 0) << names.back();
  }
}

}  // namespace
}  // namespace epic
