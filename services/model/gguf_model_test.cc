// Model::Load on GGUF files: tiny models of every architecture and type, and the default model.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/model.h"
#include "services/model/testing/tiny_model.h"
#include "services/model/testing/tiny_tokenizer.h"

namespace epic {
namespace {

using epic::testing::GgufWriter;
using epic::testing::StatusIs;
using epic::testing::TempDir;
using epic::testing::TinyModel;
using epic::testing::TinyModelSpec;
using epic::testing::WriteFileOrDie;
using ::testing::HasSubstr;

class GgufModelTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const Model>> Load(const GgufWriter& gguf) {
    const std::string path = dir_.path() + "/model.gguf";
    WriteFileOrDie(path, gguf.Finish());
    return Model::Load(path);
  }
  absl::StatusOr<std::shared_ptr<const Model>> Load(const TinyModelSpec& spec) {
    return Load(TinyModel(spec).Gguf());
  }

  TempDir dir_;
};

std::vector<float> Decode(const Tensor& tensor) {
  std::vector<float> values(tensor.rows * tensor.cols);
  for (uint64_t r = 0; r < tensor.rows; ++r) {
    DequantizeRow(tensor, r, std::span<float>(values).subspan(r * tensor.cols, tensor.cols));
  }
  return values;
}

// Rows of q or k back in the order of a Hugging Face folder.
std::vector<float> Unpermuted(const std::vector<float>& values, uint64_t cols, uint64_t head_dim) {
  std::vector<float> out(values.size());
  for (uint64_t row = 0; row < values.size() / cols; ++row) {
    const uint64_t head = row / head_dim, j = row % head_dim;
    const uint64_t from = head * head_dim + (j < head_dim / 2 ? 2 * j : 2 * (j - head_dim / 2) + 1);
    std::copy_n(values.begin() + from * cols, cols, out.begin() + row * cols);
  }
  return out;
}

TinyModelSpec SpecOf(Architecture architecture) {
  TinyModelSpec spec;
  spec.architecture = architecture;
  spec.head_dim = architecture == Architecture::kQwen3 ? 32 : 16;
  spec.tied = architecture != Architecture::kQwen2;
  return spec;
}

TEST_F(GgufModelTest, LoadsATinyModelOfEveryArchitecture) {
  for (Architecture architecture :
       {Architecture::kLlama, Architecture::kMistral, Architecture::kQwen2, Architecture::kQwen3}) {
    const TinyModel tiny(SpecOf(architecture));
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(tiny.Gguf()));
    const ModelConfig& config = model->config();
    const bool llama = architecture == Architecture::kLlama || architecture == Architecture::kMistral;
    EXPECT_EQ(config.architecture, llama ? Architecture::kLlama : architecture);
    EXPECT_EQ(config.rope.pairing, llama ? RopePairing::kNorm : RopePairing::kNeox);
    EXPECT_EQ(config.layers, 2u);
    EXPECT_EQ(config.head_dim, tiny.spec().head_dim);
    EXPECT_EQ(config.qkv_bias, architecture == Architecture::kQwen2);
    EXPECT_EQ(config.qk_norm, architecture == Architecture::kQwen3);
    EXPECT_EQ(config.tied_head, tiny.spec().tied);
    EXPECT_EQ(Decode(model->embedding()), tiny.Values("model.embed_tokens.weight"));
    EXPECT_EQ(Decode(model->output_norm()), tiny.Values("model.norm.weight"));
    EXPECT_EQ(Decode(model->head()),
              tiny.Values(tiny.spec().tied ? "model.embed_tokens.weight" : "lm_head.weight"));
    const LayerTensors& layer = model->layer(1);
    std::vector<float> q = Decode(layer.q), k = Decode(layer.k);
    if (llama)
      q = Unpermuted(q, config.hidden, config.head_dim), k = Unpermuted(k, config.hidden, config.head_dim);
    EXPECT_EQ(q, tiny.Values("model.layers.1.self_attn.q_proj.weight"));
    EXPECT_EQ(k, tiny.Values("model.layers.1.self_attn.k_proj.weight"));
    EXPECT_EQ(Decode(layer.v), tiny.Values("model.layers.1.self_attn.v_proj.weight"));
    EXPECT_EQ(Decode(layer.output), tiny.Values("model.layers.1.self_attn.o_proj.weight"));
    EXPECT_EQ(Decode(layer.gate), tiny.Values("model.layers.1.mlp.gate_proj.weight"));
    EXPECT_EQ(Decode(layer.up), tiny.Values("model.layers.1.mlp.up_proj.weight"));
    EXPECT_EQ(Decode(layer.down), tiny.Values("model.layers.1.mlp.down_proj.weight"));
    EXPECT_EQ(Decode(layer.ffn_norm), tiny.Values("model.layers.1.post_attention_layernorm.weight"));
    EXPECT_EQ(layer.q_bias.present(), config.qkv_bias);
    EXPECT_EQ(layer.k_norm.present(), config.qk_norm);
    EXPECT_EQ(model->chat_template_source(), epic::testing::kTinyChatTemplate);
  }
}

TEST_F(GgufModelTest, ReadsEveryStorageTypeOfATinyModel) {
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBf16, TensorType::kQ4_0,
                          TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ8_0,
                          TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K}) {
    TinyModelSpec spec;
    spec.hidden = spec.ffn = 256;
    spec.head_dim = 64;
    spec.matrix_type = type;
    const TinyModel tiny(spec);
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(tiny.Gguf()));
    EXPECT_EQ(model->layer(0).down.type, type);
    const std::vector<float> down = Decode(model->layer(0).down);
    EXPECT_EQ(down, tiny.Values("model.layers.0.mlp.down_proj.weight"));
    double square = 0.0;
    for (float value : down) square += double{value} * value;
    // Drawn with the standard deviation 1/sqrt(256), which every type keeps.
    EXPECT_NEAR(std::sqrt(square / static_cast<double>(down.size())), 1.0 / 16.0, 0.02) << NameOf(type);
  }
}

TEST_F(GgufModelTest, KeepsRopeFrequenciesAsLlama3Divisors) {
  TinyModelSpec spec;
  spec.rope = {.base = 500000.0, .scaling = RopeScaling::kLlama3, .factor = 8.0};
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(spec));
  EXPECT_EQ(model->config().rope.scaling, RopeScaling::kLlama3);
  ASSERT_EQ(model->config().rope.divisors.size(), spec.head_dim / 2);
  EXPECT_EQ(model->config().rope.divisors.front(), 1.0f);
  EXPECT_EQ(model->config().rope.divisors.back(), 8.0f);
}

TEST_F(GgufModelTest, ReadsLinearAndYarnScaling) {
  TinyModelSpec spec = SpecOf(Architecture::kQwen2);
  spec.rope = {.scaling = RopeScaling::kLinear, .factor = 2.0};
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const Model> model, Load(spec));
  EXPECT_EQ(model->config().rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(model->config().rope.factor, 2.0);
  spec.rope = {.scaling = RopeScaling::kYarn, .factor = 4.0, .original_context_length = 128};
  ASSERT_OK_AND_ASSIGN(model, Load(spec));
  EXPECT_EQ(model->config().rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(model->config().rope.original_context_length, 128u);
  EXPECT_NEAR(model->config().rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-12);
}

TEST_F(GgufModelTest, TakesAFactorWithoutATypeForLinearScaling) {
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"}) {
    GgufWriter gguf = TinyModel(TinyModelSpec{}).Gguf();
    gguf.SetF32(key, 4.0f);
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(gguf));
    EXPECT_EQ(model->config().rope.scaling, RopeScaling::kLinear) << key;
    EXPECT_EQ(model->config().rope.factor, 4.0);
  }
}

TEST_F(GgufModelTest, RefusesATemplateAndDropsANameThatAreNotUtf8) {
  GgufWriter gguf = TinyModel(TinyModelSpec{}).Gguf();
  gguf.SetString("general.name", "\xFF");
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(gguf));
  EXPECT_EQ(model->config().name, "");
  gguf.SetString("tokenizer.chat_template", "{{ '\xC0\xAF' }}");
  EXPECT_THAT(Load(gguf), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chat template")));
}

TEST_F(GgufModelTest, ReadsBiasesOfALlama) {
  GgufWriter gguf = TinyModel(TinyModelSpec{}).Gguf();
  for (const char* layer : {"blk.0.", "blk.1."}) {
    gguf.AddTensor(layer + std::string("attn_q.bias"), {64}, 0, std::string(256, '\0'));
    gguf.AddTensor(layer + std::string("attn_k.bias"), {32}, 0, std::string(128, '\0'));
    gguf.AddTensor(layer + std::string("attn_v.bias"), {32}, 0, std::string(128, '\0'));
  }
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(gguf));
  EXPECT_TRUE(model->config().qkv_bias);
  EXPECT_TRUE(model->layer(1).v_bias.present());
  gguf.Remove("blk.1.attn_k.bias");
  EXPECT_THAT(Load(gguf), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("blk.1.attn_k.bias")));
}

TEST_F(GgufModelTest, LimitsTheContextToTheSlidingWindow) {
  GgufWriter gguf = TinyModel(TinyModelSpec{}).Gguf();
  gguf.SetU32("llama.attention.sliding_window", 100);
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(gguf));
  EXPECT_EQ(model->config().context_length, 100u);
}

TEST_F(GgufModelTest, AcceptsWiderIntegersAndEqualValuesPerLayer) {
  GgufWriter gguf = TinyModel(TinyModelSpec{}).Gguf();
  gguf.SetU64("llama.block_count", 2);
  gguf.SetU32s("llama.attention.head_count_kv", std::vector<uint32_t>{2, 2});
  EXPECT_OK(Load(gguf));
  gguf.SetU32s("llama.attention.head_count_kv", std::vector<uint32_t>{2, 4});
  EXPECT_THAT(Load(gguf), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("head_count_kv")));
}

TEST_F(GgufModelTest, ReadsTheTokenizersThatTheMakerWrote) {
  for (const TokenizerKind kind : {TokenizerKind::kBpe, TokenizerKind::kSpm}) {
    TinyModelSpec spec;
    spec.tokenizer = kind;
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Load(spec));
    const TokenizerSpec want = epic::testing::MakeTinyTokenizer(kind, PreTokenizer::kSmolLm, spec.vocab);
    const TokenizerSpec& got = model->tokenizer_spec();
    EXPECT_EQ(got.kind, want.kind);
    EXPECT_EQ(got.pre, want.pre);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.types, want.types);
    EXPECT_EQ(got.scores, want.scores);
    EXPECT_EQ(got.merges, want.merges);
    EXPECT_EQ(got.eos, want.eos);
    EXPECT_EQ(got.eot, want.eot);
    EXPECT_EQ(got.add_bos, want.add_bos);
    EXPECT_EQ(got.space_prefix, want.space_prefix);
  }
}

TEST_F(GgufModelTest, ReadsTheDefaultModel) {
  const std::optional<std::string> path = epic::testing::DefaultModelPath();
  if (!path.has_value()) GTEST_SKIP() << "the default model is not in the cache folder";
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Model::Load(*path));
  const ModelConfig& config = model->config();
  EXPECT_EQ(config.architecture, Architecture::kLlama);
  EXPECT_EQ(config.layers, 30u);
  EXPECT_EQ(config.hidden, 576u);
  EXPECT_EQ(config.heads, 9u);
  EXPECT_EQ(config.kv_heads, 3u);
  EXPECT_EQ(config.head_dim, 64u);
  EXPECT_EQ(config.ffn, 1536u);
  EXPECT_EQ(config.vocab, 49152u);
  EXPECT_EQ(config.context_length, 8192u);
  EXPECT_EQ(config.rope.base, 100000.0);
  EXPECT_EQ(config.rope.pairing, RopePairing::kNorm);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(model->parameter_count(), 134515008u);
  EXPECT_EQ(model->tokenizer_spec().pre, PreTokenizer::kSmolLm);
  EXPECT_FALSE(model->tokenizer_spec().add_bos);
  EXPECT_EQ(model->tokenizer_spec().merges.size(), 48900u);
  EXPECT_THAT(model->chat_template_source(), HasSubstr("<|im_start|>"));
  // A change of this value changes every Cache ID that users hold. golden/model_identity.py computes it too.
  EXPECT_EQ(model->identity().Hex(), "e55a7fb83485b7b5034cfeff245618f54b079554ed0d2e9f53ad89577473d08f");
}

TEST_F(GgufModelTest, ReadsTheDefaultModelsValuesAsTheReferenceDoes) {
  const std::optional<std::string> path = epic::testing::DefaultModelPath();
  if (!path.has_value()) GTEST_SKIP() << "the default model is not in the cache folder";
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> model, Model::Load(*path));
  // First values and sum of the middle row, from golden/make_dequantize_golden.py --model.
  struct Row {
    const Tensor& tensor;
    TensorType type;
    float first[4];
    double sum;
  };
  const Row rows[] = {
      {model->embedding(),
       TensorType::kQ8_0,
       {-0x1.0388p-5f, -0x1.854cp-4f, 0x1.377p-5f, -0x1.e022p-3f},
       -0x1.03108p+0},
      {model->layer(0).q, TensorType::kQ4_1, {0x1.6p-3f, -0x1.cp-5f, -0x1.2p-2f, -0x1.2p-2f}, 0x1.9634p+1},
      {model->layer(29).down,
       TensorType::kQ4_1,
       {0x1.154p-5f, 0x1.154p-5f, -0x1.fcp-7f, 0x1.d99p-3f},
       0x1.3bc6cp+3},
      {model->output_norm(),
       TensorType::kF32,
       {0x1.c2p+0f, 0x1.d2p+0f, 0x1.c8p+0f, 0x1.9ap+0f},
       0x1.0395400000000p+10},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(row.tensor.type, row.type);
    std::vector<float> values(row.tensor.cols);
    DequantizeRow(row.tensor, row.tensor.rows / 2, values);
    double sum = 0.0;
    for (float value : values) sum += value;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(values[i], row.first[i]) << row.tensor.name;
    EXPECT_DOUBLE_EQ(sum, row.sum) << row.tensor.name;
  }
}

}  // namespace
}  // namespace epic
