// What rows lose by reading quantised weights: KL of their logits from those of the same rows multiplied as
// prompt rows, on the default model's real weights. And that decode rows and those of a probe alone read
// them.
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/engine/forward.h"
#include "services/engine/rope_frequencies.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"

namespace epic {
namespace {

using Logits = std::vector<std::vector<float>>;

// A forward pass over one model, without an engine around it.
class Runner {
 public:
  Runner(std::shared_ptr<const Model> model, DType format, DecodeWeights decode)
      : model_(std::move(model)), pool_(2) {
    const ModelConfig& config = model_->config();
    shape_ = {.layers = config.layers, .kv_heads = config.kv_heads, .head_dim = config.head_dim};
    auto weights = PackWeights(*model_, format, decode, &pool_, nullptr);
    EXPECT_OK(weights.status());
    weights_ = std::move(weights).value();
    const std::vector<double> frequencies = RopeFrequencies(config.rope, config.head_dim).value();
    const RopePairs pairs = config.rope.pairing == RopePairing::kNorm ? RopePairs::kNorm : RopePairs::kNeox;
    rope_ = std::make_unique<RopeTable>(pairs, frequencies, config.context_length, RopeScale(config.rope));
  }

  // Logits of tokens[prompt..], which run as `kind` behind tokens[..prompt] as prompt rows.
  Logits Run(std::span<const TokenId> tokens, uint32_t prompt, RowKind kind) {
    const auto rest = static_cast<uint32_t>(tokens.size()) - prompt;
    Forward forward(&model_->config(), weights_.get(), rope_.get(), shape_,
                    static_cast<uint32_t>(tokens.size()), &pool_);
    std::vector<uint32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), 0u);
    KvBlock block(shape_, positions);
    Logits logits;
    const auto stay = [](uint32_t, const Forward::ResidualFunction&, std::vector<bool>*) {};
    const auto collect = [&](size_t, uint32_t, std::span<float> row) {
      logits.emplace_back(row.begin(), row.end());
    };
    const RowGroup before[] = {{.tokens = tokens.first(prompt), .block = &block}};
    EXPECT_TRUE(forward.Run(before, stay, collect));
    const RowGroup after[] = {{.tokens = tokens.subspan(prompt),
                               .block = &block,
                               .first_row = prompt,
                               .logits_rows = rest,
                               .kind = kind}};
    EXPECT_TRUE(forward.Run(after, stay, collect));
    return logits;
  }

 private:
  std::shared_ptr<const Model> model_;
  ThreadPool pool_;
  KvShape shape_;
  std::unique_ptr<const Weights> weights_;
  std::unique_ptr<const RopeTable> rope_;
};

TEST(DecodeWeightsTest, QuantisedOnesStayWithinTwoThousandthsOfANatOnTheDefaultModel) {
  const std::optional<std::string> path = testing::DefaultModelPath();
  if (!path.has_value()) GTEST_SKIP() << "the default model is not there: run deploy/fetch_model.sh";
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Model::Load(*path));
  const std::vector<TokenId> ids = testing::EnglishIds();
  for (const DType format : {DType::kF32, DType::kBf16}) {
    Runner runner(model, format, DecodeWeights::kQuantized);
    const Logits plain = runner.Run(ids, 64, RowKind::kPrompt);
    ASSERT_EQ(plain.size(), ids.size() - 64);
    for (const RowKind kind : {RowKind::kDecode, RowKind::kProbe}) {
      const Logits quantised = runner.Run(ids, 64, kind);
      double sum = 0, worst = 0;
      size_t agree = 0;
      for (size_t i = 0; i < plain.size(); ++i) {
        const double kl = testing::KlDivergence(plain[i], quantised[i]);
        sum += kl;
        worst = std::max(worst, kl);
        agree += std::max_element(plain[i].begin(), plain[i].end()) - plain[i].begin() ==
                 std::max_element(quantised[i].begin(), quantised[i].end()) - quantised[i].begin();
      }
      const double mean = sum / static_cast<double>(plain.size());
      std::printf("%zu %s rows: KL from prompt rows mean %.2g, worst %.2g; same likeliest token in %zu\n",
                  plain.size(), kind == RowKind::kDecode ? "decode" : "probe", mean, worst, agree);
      EXPECT_LE(mean, 2e-3);
      EXPECT_GT(mean, 1e-7);  // they did run through other weights
    }
  }
}

TEST(DecodeWeightsTest, ReadTheWeightsOfPromptRowsWhenToldTo) {
  for (const testing::TinyCase& tiny : testing::TinyCases()) {
    SCOPED_TRACE(tiny.name);
    const std::shared_ptr<const Model> model = testing::LoadTiny(tiny.spec);
    std::vector<TokenId> ids(20);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(3 + 7 * i) % model->config().vocab;
    Runner same(model, DType::kF32, DecodeWeights::kSameAsPrompt);
    // Not the same bytes: decode rows join the results of their segments.
    const Logits decode = same.Run(ids, 8, RowKind::kDecode);
    const Logits prompt = same.Run(ids, 8, RowKind::kPrompt);
    for (size_t row = 0; row < prompt.size(); ++row) {
      for (size_t i = 0; i < prompt[row].size(); ++i) ASSERT_NEAR(decode[row][i], prompt[row][i], 1e-4);
    }
    EXPECT_EQ(same.Run(ids, 8, RowKind::kProbe), prompt);
    Runner quantised(model, DType::kF32, DecodeWeights::kQuantized);
    EXPECT_EQ(quantised.Run(ids, 8, RowKind::kPrompt), same.Run(ids, 8, RowKind::kPrompt));
    EXPECT_NE(quantised.Run(ids, 8, RowKind::kDecode), same.Run(ids, 8, RowKind::kDecode));
    EXPECT_NE(quantised.Run(ids, 8, RowKind::kProbe), prompt);
  }
}

}  // namespace
}  // namespace epic
