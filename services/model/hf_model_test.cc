// Model::Load on Hugging Face folders: the tiny models, against the GGUF files with the same weights.
#include <cmath>
#include <filesystem>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/hf_config.h"
#include "services/model/hf_spm_scores.h"
#include "services/model/hf_tokenizer.h"
#include "services/model/model.h"
#include "services/model/testing/tiny_model.h"
#include "services/model/testing/tiny_tokenizer.h"
#include "services/model/tokenizer.h"
#include "services/model/tokenizer/golden_test_util.h"

namespace epic {
namespace {

using epic::testing::ReadFileOrDie;
using epic::testing::StatusIs;
using epic::testing::TempDir;
using epic::testing::TinyModel;
using epic::testing::TinyModelSpec;
using epic::testing::WriteFileOrDie;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::vector<float> Decode(const Tensor& tensor) {
  std::vector<float> values(tensor.rows * tensor.cols);
  for (uint64_t r = 0; r < tensor.rows; ++r) {
    DequantizeRow(tensor, r, std::span<float>(values).subspan(r * tensor.cols, tensor.cols));
  }
  return values;
}

class HfModelTest : public ::testing::Test {
 protected:
  std::string Folder() const { return dir_.path() + "/model"; }
  absl::StatusOr<std::shared_ptr<const Model>> Load() { return Model::Load(Folder()); }
  void Write(const TinyModelSpec& spec, int shards = 1) {
    std::filesystem::remove_all(Folder());
    TinyModel(spec).WriteHuggingFace(Folder(), shards);
  }
  // Rewrites a JSON file of the folder through `edit`.
  template <typename Edit>
  void EditJson(const std::string& name, Edit edit) {
    Json json = Json::parse(ReadFileOrDie(Folder() + "/" + name));
    edit(json);
    WriteFileOrDie(Folder() + "/" + name, json.dump());
  }

  TempDir dir_;
};

TEST_F(HfModelTest, LoadsEveryArchitectureWithTheSameSizesAsItsGgufFile) {
  for (Architecture architecture :
       {Architecture::kLlama, Architecture::kMistral, Architecture::kQwen2, Architecture::kQwen3}) {
    for (TensorType type : {TensorType::kF32, TensorType::kBf16, TensorType::kF16, TensorType::kQ8_0}) {
      TinyModelSpec spec;
      spec.architecture = architecture;
      spec.matrix_type = type;
      spec.tied = type != TensorType::kBf16;
      const TinyModel tiny(spec);
      Write(spec, type == TensorType::kF16 ? 3 : 1);
      tiny.WriteGguf(dir_.path() + "/model.gguf");
      ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> folder, Load());
      ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> gguf, Model::Load(dir_.path() + "/model.gguf"));
      const ModelConfig& config = folder->config();
      EXPECT_EQ(config.architecture, architecture);
      EXPECT_EQ(config.name, "model");
      EXPECT_EQ(config.rope.pairing, RopePairing::kNeox);
      EXPECT_EQ(config.hidden, gguf->config().hidden);
      EXPECT_EQ(config.head_dim, gguf->config().head_dim);
      EXPECT_EQ(config.context_length, gguf->config().context_length);
      EXPECT_EQ(config.qkv_bias, gguf->config().qkv_bias);
      EXPECT_EQ(config.qk_norm, gguf->config().qk_norm);
      EXPECT_EQ(config.tied_head, gguf->config().tied_head);
      EXPECT_EQ(folder->parameter_count(), gguf->parameter_count());
      EXPECT_EQ(Decode(folder->embedding()), Decode(gguf->embedding()));
      EXPECT_EQ(Decode(folder->head()), Decode(gguf->head()));
      EXPECT_EQ(Decode(folder->layer(1).q), tiny.Values("model.layers.1.self_attn.q_proj.weight"));
      EXPECT_EQ(Decode(folder->layer(1).v), Decode(gguf->layer(1).v));
      EXPECT_EQ(Decode(folder->layer(1).down), Decode(gguf->layer(1).down));
      EXPECT_EQ(folder->chat_template_source(), gguf->chat_template_source());
    }
  }
}

TEST_F(HfModelTest, ReadsTheSameByteLevelTokenizerFromBothFormats) {
  for (Architecture architecture : {Architecture::kLlama, Architecture::kQwen2}) {
    TinyModelSpec spec;
    spec.architecture = architecture;
    Write(spec);
    TinyModel(spec).WriteGguf(dir_.path() + "/model.gguf");
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> folder, Load());
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> gguf, Model::Load(dir_.path() + "/model.gguf"));
    const TokenizerSpec& a = folder->tokenizer_spec();
    const TokenizerSpec& b = gguf->tokenizer_spec();
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.pre, b.pre);
    EXPECT_EQ(a.nfc, b.nfc);
    EXPECT_EQ(a.ignore_merges, b.ignore_merges);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.types, b.types);
    EXPECT_EQ(a.merges, b.merges);
    EXPECT_EQ(a.bos, b.bos);
    EXPECT_EQ(a.eos, b.eos);
    EXPECT_EQ(a.eot, b.eot);
    EXPECT_EQ(a.padding, b.padding);
    EXPECT_EQ(a.add_bos, b.add_bos);
  }
}

TEST(HfTokenizerTest, SpacesArePrefixedAsTheTokenizersPackageDoesForEverySchemeOfTheFile) {
  const nlohmann::json golden = epic::testing::ReadGolden("spm_prefix.json");
  const std::vector<std::string> texts = golden["texts"];
  for (const nlohmann::json& shape : golden["shapes"]) {
    SCOPED_TRACE(shape["name"].get<std::string>());
    HfTokenizerFiles files;
    files.tokenizer_path = "tokenizer.json";
    files.tokenizer = golden["tokenizer"];
    files.tokenizer["normalizer"] = shape["normalizer"];
    files.tokenizer["pre_tokenizer"] = shape["pre_tokenizer"];
    files.config_path = "tokenizer_config.json";
    files.config = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}};
    files.vocab =
        static_cast<uint32_t>(files.tokenizer["model"]["vocab"].size() + 3);  // three tokens are added
    ASSERT_OK_AND_ASSIGN(const TokenizerSpec spec, ReadHfTokenizer(files));
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<const Tokenizer> tokenizer, Tokenizer::Create(spec));
    for (size_t i = 0; i < texts.size(); ++i) {
      ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> ids, tokenizer->Encode(texts[i], true));
      EXPECT_EQ(ids, shape["ids"][i].get<std::vector<TokenId>>())
          << shape["name"] << " " << golden["texts"][i];
    }
  }
}

TEST_F(HfModelTest, GivesASentencePieceVocabularyScoresThatKeepItsIds) {
  TinyModelSpec spec;
  spec.tokenizer = TokenizerKind::kSpm;
  Write(spec);
  TinyModel(spec).WriteGguf(dir_.path() + "/model.gguf");
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> folder, Load());
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> gguf, Model::Load(dir_.path() + "/model.gguf"));
  EXPECT_EQ(folder->tokenizer_spec().kind, TokenizerKind::kSpm);
  EXPECT_EQ(folder->tokenizer_spec().tokens, gguf->tokenizer_spec().tokens);
  EXPECT_EQ(folder->tokenizer_spec().types, gguf->tokenizer_spec().types);
  EXPECT_EQ(folder->tokenizer_spec().space_prefix, SpacePrefix::kEach);
  EXPECT_TRUE(folder->tokenizer_spec().add_bos);
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<const Tokenizer> a, Tokenizer::Create(folder->tokenizer_spec()));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<const Tokenizer> b, Tokenizer::Create(gguf->tokenizer_spec()));
  for (const char* text :
       {"hello the world", "  listing and uniting", "thethethe of tototo", "éü ∑ x\ny", ""}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> ids_a, a->Encode(text));
    ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> ids_b, b->Encode(text));
    EXPECT_EQ(ids_a, ids_b) << text;
  }
}

TEST_F(HfModelTest, RefusesMergesThatScoresCannotExpress) {
  const std::vector<std::string> tokens = {"a", "b", "c", "ab", "bc", "abc"};
  const std::vector<TokenType> types(tokens.size(), TokenType::kNormal);
  const auto scores = SpmScoresFromMerges(tokens, types, {{"a", "b"}, {"b", "c"}, {"ab", "c"}, {"a", "bc"}});
  ASSERT_OK(scores);
  EXPECT_EQ(*scores, (std::vector<float>{-5, -5, -5, 0, -1, -2}));
  EXPECT_THAT(SpmScoresFromMerges(tokens, types, {{"a", "b"}, {"b", "c"}, {"ab", "c"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing joins")));
  EXPECT_THAT(SpmScoresFromMerges(tokens, types, {{"a", "b"}, {"ab", "c"}, {"b", "c"}, {"a", "bc"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stand together")));
}

TEST_F(HfModelTest, ComputesLlama3DivisorsAsTheReferenceFormula) {
  // Llama 3.2 1B: reference values by the formula in extended precision, head size 64.
  const std::vector<float> divisors = Llama3Divisors(500000.0, 64, 32.0, 1.0, 4.0, 8192.0);
  ASSERT_EQ(divisors.size(), 32u);
  EXPECT_EQ(divisors[0], 1.0f);
  EXPECT_EQ(divisors[31], 32.0f);
  // By hand: the wavelength of j is 2 pi 500000^(j/32); those between 2048 and 8192 blend.
  for (int j = 0; j < 32; ++j) {
    const double wavelength = 2.0 * std::numbers::pi * std::exp(std::log(500000.0) * j / 32.0);
    double want = wavelength < 2048.0 ? 1.0 : 32.0;
    if (wavelength >= 2048.0 && wavelength <= 8192.0) {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      want = 32.0 / (1.0 - smooth + 32.0 * smooth);
    }
    EXPECT_NEAR(divisors[j], want, 1e-5 * want) << j;
  }
  TinyModelSpec spec;
  spec.rope = {.base = 500000.0, .scaling = RopeScaling::kLlama3, .factor = 8.0};
  Write(spec);
  TinyModel(spec).WriteGguf(dir_.path() + "/model.gguf");
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> folder, Load());
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<const Model> gguf, Model::Load(dir_.path() + "/model.gguf"));
  ASSERT_EQ(folder->config().rope.divisors.size(), gguf->config().rope.divisors.size());
  for (size_t j = 0; j < folder->config().rope.divisors.size(); ++j) {
    EXPECT_FLOAT_EQ(folder->config().rope.divisors[j], gguf->config().rope.divisors[j]);
  }
}

TEST_F(HfModelTest, ReadsRopeParametersOfOldAndNewFiles) {
  Write(TinyModelSpec{});
  EditJson("config.json", [](Json& json) {
    json.erase("rope_theta");
    json.erase("rope_scaling");
    json["rope_parameters"] = {{"rope_theta", 250000}, {"rope_type", "linear"}, {"factor", 3}};
  });
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const Model> model, Load());
  EXPECT_EQ(model->config().rope.base, 250000.0);
  EXPECT_EQ(model->config().rope.scaling, RopeScaling::kLinear);
  EXPECT_EQ(model->config().rope.factor, 3.0);
  EditJson("config.json", [](Json& json) {
    json.erase("rope_parameters");
    json["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  });
  ASSERT_OK_AND_ASSIGN(model, Load());
  EXPECT_EQ(model->config().rope.scaling, RopeScaling::kYarn);
  EXPECT_EQ(model->config().context_length, 2048u);
  EXPECT_NEAR(model->config().rope.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-12);
}

TEST_F(HfModelTest, RefusesRotaryVariantsAndFeaturesByName) {
  const std::pair<const char*, Json> cases[] = {
      {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
      {"rope_scaling", {{"rope_type", "longrope"}, {"short_factor", Json::array({1})}}},
      {"rope_scaling", {{"type", "su"}}},
      {"rope_scaling", {{"type", "mrope"}, {"mrope_section", Json::array({8, 8})}}},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 2.0}, {"truncate", false}}},
      {"rope_scaling", {{"type", "llama3"}, {"factor", 2.0}}},
      {"rope_scaling", {{"type", "linear"}}},
      {"partial_rotary_factor", 0.5},
      {"num_local_experts", 8},
      {"quantization_config", {{"bits", 4}}},
      {"model_type", "gemma"},
      {"hidden_act", "gelu"},
      {"mlp_bias", true},
      {"num_attention_heads", 0},
      {"num_attention_heads", 3},
      {"num_attention_heads", -4},
      {"num_attention_heads", "four"},
      {"num_key_value_heads", 3},
      {"num_hidden_layers", 100000},
      {"num_hidden_layers", 3},
      {"head_dim", 15},
      {"hidden_size", 1e300},
      {"vocab_size", 4000000000u},
      {"vocab_size", 449},
      {"rms_norm_eps", -1},
      {"rope_theta", 0},
      {"max_position_embeddings", nullptr},
      {"eos_token_id", 448},
      {"layer_types", Json::array({"linear_attention"})},
  };
  for (const auto& [key, value] : cases) {
    Write(TinyModelSpec{});
    EditJson("config.json", [&, key = key, value = value](Json& json) { json[key] = value; });
    EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model file ")))
        << key << value;
  }
}

TEST_F(HfModelTest, LimitsTheContextToTheSlidingWindow) {
  TinyModelSpec spec;
  spec.architecture = Architecture::kMistral;
  Write(spec);
  EditJson("config.json", [](Json& json) { json["sliding_window"] = 128; });
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const Model> model, Load());
  EXPECT_EQ(model->config().context_length, 128u);
  spec.architecture = Architecture::kQwen2;
  Write(spec);
  EditJson("config.json",
           [](Json& json) { json["sliding_window"] = 128, json["use_sliding_window"] = false; });
  ASSERT_OK_AND_ASSIGN(model, Load());
  EXPECT_EQ(model->config().context_length, 512u);
  EditJson("config.json", [](Json& json) { json["use_sliding_window"] = true; });
  ASSERT_OK_AND_ASSIGN(model, Load());
  EXPECT_EQ(model->config().context_length, 128u);
}

TEST_F(HfModelTest, RefusesTokenizersThatItDoesNotKnow) {
  using Edit = void (*)(Json&);
  const Edit edits[] = {
      [](Json& json) { json["model"]["type"] = "Unigram"; },
      [](Json& json) { json["model"]["dropout"] = 0.1; },
      [](Json& json) { json["model"]["end_of_word_suffix"] = "</w>"; },
      [](Json& json) { json["model"].erase("vocab"); },
      [](Json& json) { json["model"]["vocab"]["extra"] = 100000; },
      [](Json& json) { json["model"]["vocab"]["extra"] = 5; },
      [](Json& json) { json["model"]["merges"].push_back("nothing here"); },
      [](Json& json) { json["model"]["merges"].push_back(7); },
      [](Json& json) {
        json["normalizer"] = {{"type", "Lowercase"}};
      },
      [](Json& json) {
        json["pre_tokenizer"] = {{"type", "Whitespace"}};
      },
      [](Json& json) { json["pre_tokenizer"] = nullptr; },
      [](Json& json) { json["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false; },
      [](Json& json) { json["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
      [](Json& json) {
        json["post_processor"] = {{"type", "RobertaProcessing"}};
      },
      [](Json& json) { json["added_tokens"][0]["lstrip"] = true; },
      [](Json& json) { json["added_tokens"][0]["id"] = 1; },
      [](Json& json) { json["added_tokens"] = 3; },
  };
  int index = 0;
  for (const Edit edit : edits) {
    Write(TinyModelSpec{});
    EditJson("tokenizer.json", edit);
    EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer.json"))) << index;
    ++index;
  }
}

TEST_F(HfModelTest, ReadsTemplatesFromEveryPlaceAndEndsOfGeneration) {
  Write(TinyModelSpec{});
  EditJson("tokenizer_config.json", [](Json& json) {
    json["chat_template"] =
        Json::array({{{"name", "tool_use"}, {"template", "T"}}, {{"name", "default"}, {"template", "D"}}});
    json["eos_token"] = {{"content", "<|im_end|>"}};
  });
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<const Model> model, Load());
  EXPECT_EQ(model->chat_template_source(), "D");
  EXPECT_EQ(model->tokenizer_spec().eos, 2u);
  EXPECT_EQ(model->tokenizer_spec().eot, 0u);
  WriteFileOrDie(Folder() + "/chat_template.jinja", "J");
  WriteFileOrDie(Folder() + "/generation_config.json", R"({"eos_token_id": [2, 0, 1, 5]})");
  ASSERT_OK_AND_ASSIGN(model, Load());
  EXPECT_EQ(model->chat_template_source(), "J");
  EXPECT_EQ(model->tokenizer_spec().end_of_generation, (std::vector<uint32_t>{1, 5}));
}

TEST_F(HfModelTest, NamesWhatIsMissingOrMisplaced) {
  Write(TinyModelSpec{});
  std::filesystem::remove(Folder() + "/tokenizer.json");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer.json")));
  Write(TinyModelSpec{});
  std::filesystem::remove(Folder() + "/model.safetensors");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.safetensors")));
  Write(TinyModelSpec{}, 2);
  EditJson("model.safetensors.index.json",
           [](Json& json) { json["weight_map"]["model.norm.weight"] = "../../etc/passwd"; });
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("weight_map")));
  Write(TinyModelSpec{}, 2);
  std::filesystem::remove(Folder() + "/model-00002-of-00002.safetensors");
  EXPECT_THAT(Load(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("weight_map"), HasSubstr("missing"))));
  EXPECT_THAT(Model::Load(dir_.path() + "/nowhere"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace epic
