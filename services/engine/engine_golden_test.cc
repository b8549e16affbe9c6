// Oracle 6: logits and greedy answers against transformers in f32 on the same weights. The golden files and
// the script that made them are in services/engine/golden.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "kernels/sampling/sampling.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr double kF32Bound = 1e-4;
constexpr double kKlBound = 1e-3;

struct GoldenRow {
  uint32_t index = 0;  // logits after prompt token `index`
  double log_sum_exp = 0;
  std::vector<std::pair<TokenId, float>> logits;
};

struct GoldenPrompt {
  std::vector<TokenId> tokens;
  std::vector<GoldenRow> rows;
  std::vector<std::pair<TokenId, float>> greedy;  // token, margin to the second best
};

std::vector<std::pair<TokenId, float>> ReadPairs(std::istream& in) {
  std::vector<std::pair<TokenId, float>> pairs;
  std::string item;
  while (in >> item) {
    const size_t colon = item.find(':');
    pairs.emplace_back(std::stoul(item.substr(0, colon)), std::stof(item.substr(colon + 1)));
  }
  return pairs;
}

std::vector<GoldenPrompt> ReadGolden(const std::string& name) {
  std::istringstream file(testing::ReadFileOrDie(testing::SourceDir() + "/services/engine/golden/" + name));
  std::vector<GoldenPrompt> prompts;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "prompt") {
      prompts.emplace_back();
      TokenId id;
      while (in >> id) prompts.back().tokens.push_back(id);
    } else if (kind == "row") {
      GoldenRow row;
      size_t count = 0;
      in >> row.index >> row.log_sum_exp >> count;
      std::getline(file, line);
      std::istringstream values(line);
      row.logits = ReadPairs(values);
      EXPECT_EQ(row.logits.size(), count);
      prompts.back().rows.push_back(row);
    } else {
      EXPECT_EQ(kind, "greedy");
      prompts.back().greedy = ReadPairs(in);
    }
  }
  EXPECT_FALSE(prompts.empty());
  return prompts;
}

// Logits after every token of `tokens` from `first` on.
std::vector<std::vector<float>> LogitsAfter(Engine* engine, const std::vector<TokenId>& tokens,
                                            uint32_t first) {
  std::vector<TokenId> rest(tokens.begin() + first + 1, tokens.end());
  rest.push_back(0);
  auto score = Score(engine, {Text({tokens.begin(), tokens.begin() + first + 1})}, kFull, rest);
  EXPECT_OK(score.status());
  return (*score)->logits;
}

double GoldenDifference(const GoldenRow& golden, const std::vector<float>& logits) {
  double difference = std::fabs(LogSumExp(logits) - golden.log_sum_exp);
  double highest = std::fabs(golden.log_sum_exp);
  for (const auto& [id, value] : golden.logits) {
    difference = std::max(difference, std::fabs(double{logits[id]} - value));
    highest = std::max(highest, std::fabs(double{value}));
  }
  return difference / highest;
}

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

// The greedy answer by decoding equals the reference's, up to the first step whose margin is under `noise`.
void ExpectGreedy(Engine* engine, const GoldenPrompt& golden, float noise) {
  LinkRequest request{.pieces = {Text(golden.tokens)}, .strategy = kFull};
  request.sampling.temperature = 0;
  request.max_tokens = static_cast<uint32_t>(golden.greedy.size());
  ASSERT_OK_AND_ASSIGN(const auto link, testing::Link(engine, std::move(request)));
  const std::vector<TokenId> ids = link->Ids(0);
  ASSERT_EQ(ids.size(), golden.greedy.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == golden.greedy[i].first) continue;
    EXPECT_LT(golden.greedy[i].second, noise)
        << "token " << i << " is " << ids[i] << ", not " << golden.greedy[i].first;
    return;
  }
}

// f32 and bf16 engines on the same prompts.
void CompareModel(const std::shared_ptr<const Model>& model, const std::vector<GoldenPrompt>& prompts,
                  EngineOptions options) {
  options.decode_weights = DecodeWeights::kSameAsPrompt;
  options.compute = ComputeFormat::kF32;
  options.kv_dtype = KvDtype::kF32;
  const auto f32 = testing::MakeEngine(model, options);
  std::unique_ptr<Engine> bf16;
  if (testing::NativeFormats().size() > 1) {
    options.compute = ComputeFormat::kBf16;
    options.kv_dtype = KvDtype::kBf16;
    bf16 = testing::MakeEngine(model, options);
  }
  for (const GoldenPrompt& prompt : prompts) {
    const uint32_t first = prompt.rows.front().index;
    const auto exact = LogitsAfter(f32.get(), prompt.tokens, first);
    for (const GoldenRow& row : prompt.rows) {
      EXPECT_LE(GoldenDifference(row, exact[row.index - first]), kF32Bound) << "row " << row.index;
    }
    ExpectGreedy(f32.get(), prompt, 1e-3f);
    if (bf16 == nullptr) continue;
    const auto rounded = LogitsAfter(bf16.get(), prompt.tokens, first);
    double sum = 0, worst = 0;
    float noise = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      const double kl = testing::KlDivergence(exact[i], rounded[i]);
      sum += kl;
      worst = std::max(worst, kl);
      noise = std::max(noise, LargestDifference(exact[i], rounded[i]));
      if (ArgMax(exact[i]) == ArgMax(rounded[i])) continue;
      EXPECT_LT(exact[i][ArgMax(exact[i])] - exact[i][ArgMax(rounded[i])], 2 * noise);
    }
    std::printf("bf16: %zu rows, KL mean %.2g worst %.2g, logits differ by at most %.3g\n", exact.size(),
                sum / exact.size(), worst, noise);
    EXPECT_LE(sum / exact.size(), kKlBound);
    ExpectGreedy(bf16.get(), prompt, 2 * noise);
  }
}

TEST(EngineGoldenTest, TinyModelsOfEveryArchitectureEqualTransformers) {
  for (const testing::TinyCase& tiny : testing::GoldenCases()) {
    SCOPED_TRACE(tiny.name);
    CompareModel(testing::LoadTiny(tiny.spec), ReadGolden("tiny_" + tiny.name + ".txt"),
                 testing::TinyOptions(ComputeFormat::kF32));
  }
}

TEST(EngineGoldenTest, TheDefaultModelEqualsTransformers) {
  const std::optional<std::string> path = testing::DefaultModelPath();
  if (!path.has_value()) GTEST_SKIP() << "the default model is not there: run deploy/fetch_model.sh";
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Model::Load(*path));
  CompareModel(model, ReadGolden("default_model.txt"), {});
}

}  // namespace
}  // namespace epic
