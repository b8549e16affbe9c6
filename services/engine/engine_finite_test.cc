// Values that are not finite: they fail the request that computed or read them, are kept nowhere, and change
// no byte of its neighbours.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/engine/testing/engine_harness.h"
#include "services/engine/testing/tiny_engines.h"
#include "services/model/testing/tiny_model.h"

namespace epic {
namespace {

using testing::CollectLink;
using testing::Link;
using testing::Score;
using testing::Text;

constexpr LinkStrategy kFull{StrategyKind::kFull, 0};
constexpr TokenId kLoud = 77;

std::vector<TokenId> Quiet(size_t count) {
  std::vector<TokenId> tokens = testing::RandomTokens(1, count, 400);
  for (TokenId& token : tokens) token += token == kLoud ? 1 : 0;
  return tokens;
}

// The f32 weights of a folder's model.safetensors, changed in place.
class WeightEditor {
 public:
  explicit WeightEditor(const std::string& path) : path_(path), bytes_(testing::ReadFileOrDie(path)) {
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
    header_ = nlohmann::json::parse(bytes_.substr(8, header_bytes));
    data_ = 8 + header_bytes;
  }
  void Write() const { testing::WriteFileOrDie(path_, bytes_); }

  float Get(const std::string& name, size_t row, size_t column) const {
    float value = 0;
    std::memcpy(&value, bytes_.data() + At(name, row, column), sizeof(value));
    return value;
  }
  void Set(const std::string& name, size_t row, size_t column, double value) {
    const auto rounded = static_cast<float>(value);
    std::memcpy(bytes_.data() + At(name, row, column), &rounded, sizeof(rounded));
  }
  size_t Columns(const std::string& name) const { return header_.at(name).at("shape").back().get<size_t>(); }
  size_t Rows(const std::string& name) const { return header_.at(name).at("shape").front().get<size_t>(); }

 private:
  size_t At(const std::string& name, size_t row, size_t column) const {
    return data_ + header_.at(name).at("data_offsets")[0].get<size_t>() +
           sizeof(float) * (row * Columns(name) + column);
  }

  const std::string path_;
  std::string bytes_;
  nlohmann::json header_;
  size_t data_ = 0;
};

// A model whose token kLoud has, in layer 0, a key that is finite in f32 and infinite in bf16, and that no
// query gives any weight: every later row's score of it is minus infinity. Its logits are finite.
std::shared_ptr<const Model> ModelWithAHiddenInfinity() {
  const testing::TempDir dir;
  const std::string folder = dir.path() + "/model";
  const testing::TinyModelSpec spec;
  testing::TinyModel(spec).WriteHuggingFace(folder);
  WeightEditor weights(folder + "/model.safetensors");
  const std::string layer = "model.layers.0.";
  const std::string embedding = "model.embed_tokens.weight";
  // Component 0 tells kLoud from the rest; component 1 is the same in all.
  for (size_t token = 0; token < weights.Rows(embedding); ++token) {
    weights.Set(embedding, token, 0, token == kLoud ? 8.0 : 0.0);
    weights.Set(embedding, token, 1, 8.0);
  }
  double squares = 0;
  for (size_t i = 0; i < spec.hidden; ++i) squares += std::pow(weights.Get(embedding, kLoud, i), 2);
  const double rms = std::sqrt(squares / spec.hidden);
  const double loud = weights.Get(layer + "input_layernorm.weight", 0, 0) * 8.0 / rms;
  // The slowest pair of the first KV head and of the query heads that read it: positions hardly turn it.
  const size_t dim = spec.head_dim / 2 - 1;
  for (size_t i = 0; i < spec.hidden; ++i) {
    // Between the largest bf16 and the largest f32.
    weights.Set(layer + "self_attn.k_proj.weight", dim, i, i == 0 ? 3.4e38 / loud : 0.0);
    for (size_t head = 0; head < spec.heads / spec.kv_heads; ++head) {
      weights.Set(layer + "self_attn.q_proj.weight", head * spec.head_dim + dim, i, i == 1 ? -1.0 : 0.0);
    }
  }
  weights.Write();
  auto model = Model::Load(folder);
  EXPECT_OK(model.status());
  return *std::move(model);
}

// A model whose token kLoud is not a number.
std::shared_ptr<const Model> ModelWithABrokenToken() {
  const testing::TempDir dir;
  const std::string folder = dir.path() + "/model";
  testing::TinyModel(testing::TinyModelSpec{}).WriteHuggingFace(folder);
  WeightEditor weights(folder + "/model.safetensors");
  weights.Set("model.embed_tokens.weight", kLoud, 5, std::nan(""));
  weights.Write();
  auto model = Model::Load(folder);
  EXPECT_OK(model.status());
  return *std::move(model);
}

class EngineFiniteTest : public ::testing::TestWithParam<KvDtype> {
 protected:
  EngineFiniteTest() : model_(ModelWithAHiddenInfinity()) {
    EngineOptions options = testing::TinyOptions(ComputeFormat::kF32);
    // The token's key must be the same number in a decode row as in a prompt.
    options.decode_weights = DecodeWeights::kSameAsPrompt;
    options.kv_dtype = GetParam();
    options.panel_tokens = 16;
    options.prefix_cache_bytes = 4ull << 20;
    engine_ = testing::MakeEngine(model_, options);
  }
  static LinkRequest Greedy(std::vector<TokenId> tokens, uint32_t max_tokens) {
    LinkRequest request{.tenant = "default", .pieces = {Text(std::move(tokens))}, .strategy = kFull};
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }
  static std::vector<TokenId> WithLoud() {
    std::vector<TokenId> tokens = Quiet(60);
    tokens[20] = kLoud;
    return tokens;
  }

  const std::shared_ptr<const Model> model_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineFiniteTest, AnInfiniteKeyThatNoLogitShowsFailsItsPromptAndIsNotCached) {
  ASSERT_OK(Link(engine_.get(), Greedy(Quiet(60), 3)).status());
  const uint64_t cached = engine_->Gauges().prefix_cache_bytes;
  EXPECT_GT(cached, 0u);
  const absl::Status link = Link(engine_.get(), Greedy(WithLoud(), 3)).status();
  const absl::Status score = Score(engine_.get(), {Text(WithLoud())}, kFull, {1, 2, 3}).status();
  const absl::Status compile = testing::Compile(engine_.get(), WithLoud()).status();
  if (GetParam() == KvDtype::kF32) {
    // The control: the same numbers are no fault where the type holds them, and show in no logit.
    EXPECT_OK(link);
    EXPECT_OK(score);
    EXPECT_OK(compile);
    return;
  }
  for (const absl::Status& status : {link, score, compile}) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(CodeOf(status), ErrorCode::kInternal);
  }
  EXPECT_EQ(engine_->Gauges().prefix_cache_bytes, cached);
}

TEST_P(EngineFiniteTest, AnInfiniteKeyOfADecodedTokenEndsItsAnswerThere) {
  LinkRequest request = Greedy(Quiet(60), 4);
  request.sampling.logit_bias = {{kLoud, 1e6f}};
  auto sink = std::make_shared<CollectLink>(1);
  ASSERT_OK(engine_->SubmitLink(std::move(request), sink));
  const absl::Status status = sink->done.Wait();
  if (GetParam() == KvDtype::kF32) {
    EXPECT_OK(status);
    return;
  }
  EXPECT_EQ(CodeOf(status), ErrorCode::kInternal);
  EXPECT_EQ(sink->Ids(0), std::vector<TokenId>{kLoud});
  EXPECT_EQ(sink->ends[0], std::vector<FinishReason>{FinishReason::kError});
}

// The head is tied to the embedding, so this token's logit is no number in any answer.
TEST(EngineBrokenWeightsTest, AModelThatIsNotANumberFailsRequestsAndNothingElse) {
  const auto engine = testing::MakeEngine(ModelWithABrokenToken(), testing::TinyOptions(ComputeFormat::kF32));
  LinkRequest request{.pieces = {Text(Quiet(40))}, .strategy = kFull};
  request.max_tokens = 3;
  EXPECT_EQ(CodeOf(Link(engine.get(), request).status()), ErrorCode::kInternal);
  EXPECT_EQ(CodeOf(Score(engine.get(), {Text(Quiet(40))}, kFull, {1, 2}).status()), ErrorCode::kInternal);
  // A compile makes no logits.
  EXPECT_OK(testing::Compile(engine.get(), Quiet(40)).status());
  std::vector<TokenId> tokens = Quiet(40);
  tokens[39] = kLoud;
  EXPECT_EQ(CodeOf(testing::Compile(engine.get(), tokens).status()), ErrorCode::kInternal);
  EXPECT_EQ(engine->Gauges().running, 0u);
  EXPECT_EQ(engine->Gauges().private_rows, 0u);
}

INSTANTIATE_TEST_SUITE_P(KvTypes, EngineFiniteTest, ::testing::Values(KvDtype::kF32, KvDtype::kBf16),
                         [](const auto& info) { return info.param == KvDtype::kF32 ? "f32" : "bf16"; });

}  // namespace
}  // namespace epic
