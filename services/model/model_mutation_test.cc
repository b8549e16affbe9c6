// Mutated model files: each gives a clear error that names the field, or loads; none takes memory out of
// proportion to its size.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/model.h"
#include "services/model/testing/allocation_meter.h"
#include "services/model/testing/gguf_writer.h"
#include "services/model/testing/tiny_model.h"

namespace epic {
namespace {

using epic::testing::GgufWriter;
using epic::testing::ReadFileOrDie;
using epic::testing::StatusIs;
using epic::testing::TempDir;
using epic::testing::TinyModel;
using epic::testing::TinyModelSpec;
using epic::testing::WriteFileOrDie;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TinyModelSpec Small() {
  TinyModelSpec spec;
  spec.layers = 1;
  spec.hidden = spec.ffn = 32;
  spec.heads = 2;
  spec.kv_heads = 1;
  return spec;
}

class ModelMutationTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const Model>> Load(const std::string& bytes) {
    WriteFileOrDie(path(), bytes);
    epic::testing::ResetAllocationPeak();
    absl::StatusOr<std::shared_ptr<const Model>> model = Model::Load(path());
    EXPECT_LE(epic::testing::AllocationPeakBytes(), 16 * bytes.size() + (1u << 20));
    return model;
  }
  std::string path() const { return dir_.path() + "/model.gguf"; }

  TempDir dir_;
};

TEST_F(ModelMutationTest, EveryHeaderFieldOfGgufMayHoldAnything) {
  std::vector<GgufWriter::Field> fields;
  const std::string good = TinyModel(Small()).Gguf().Finish(&fields);
  EXPECT_OK(Load(good));
  EXPECT_GT(epic::testing::AllocationPeakBytes(), 10000u) << "the meter does not count";
  int errors = 0, mutants = 0;
  for (const GgufWriter::Field& field : fields) {
    if (field.name == "data") continue;
    for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{3}, uint64_t{1} << 31, uint64_t{1} << 60,
                           uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{7}}) {
      std::string bytes = good;
      const uint64_t size = std::min<uint64_t>(field.size, sizeof(value));
      std::memcpy(bytes.data() + field.offset, &value, size);
      if (bytes == good) continue;
      ++mutants;
      const auto model = Load(bytes);
      if (model.ok()) continue;
      ++errors;
      EXPECT_THAT(model, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path()))) << field.name;
      EXPECT_FALSE(ParamOf(model.status()).empty()) << field.name;
    }
  }
  EXPECT_GT(mutants, 600);
  EXPECT_GT(errors, mutants / 2);
}

TEST_F(ModelMutationTest, EveryTruncationOfTheHeaderIsAnError) {
  std::vector<GgufWriter::Field> fields;
  const std::string good = TinyModel(Small()).Gguf().Finish(&fields);
  for (const GgufWriter::Field& field : fields) {
    for (uint64_t size : {field.offset, field.offset + field.size / 2}) {
      EXPECT_THAT(Load(good.substr(0, std::max<uint64_t>(size, 1))),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path())))
          << field.name;
    }
  }
}

struct NamedMutation {
  const char* field;  // part of the message
  void (*edit)(GgufWriter&);
};

const NamedMutation kGgufMutations[] = {
    {"version", [](GgufWriter& g) { g.set_version(1); }},
    {"version", [](GgufWriter& g) { g.set_version(4); }},
    {"big-endian", [](GgufWriter& g) { g.set_version(0x03000000); }},
    {"general.architecture", [](GgufWriter& g) { g.SetString("general.architecture", "gptneox"); }},
    {"general.architecture", [](GgufWriter& g) { g.SetU32("general.architecture", 5); }},
    {"general.architecture", [](GgufWriter& g) { g.Remove("general.architecture"); }},
    {"general.alignment", [](GgufWriter& g) { g.SetU32("general.alignment", 0); }},
    {"general.alignment", [](GgufWriter& g) { g.SetU32("general.alignment", 48); }},
    {"general.alignment", [](GgufWriter& g) { g.SetU64("general.alignment", 1ull << 62); }},
    {"general.alignment", [](GgufWriter& g) { g.SetString("general.alignment", "32"); }},
    {"llama.block_count", [](GgufWriter& g) { g.SetU32("llama.block_count", 0); }},
    {"block_count", [](GgufWriter& g) { g.SetU32("llama.block_count", 4000000000u); }},
    {"blk.1.attn_norm.weight", [](GgufWriter& g) { g.SetU32("llama.block_count", 2); }},
    {"llama.block_count", [](GgufWriter& g) { g.SetI32("llama.block_count", -1); }},
    {"llama.block_count", [](GgufWriter& g) { g.SetF32("llama.block_count", 1.0f); }},
    {"llama.block_count", [](GgufWriter& g) { g.Remove("llama.block_count"); }},
    {"llama.embedding_length", [](GgufWriter& g) { g.SetU64("llama.embedding_length", 1ull << 40); }},
    {"token_embd.weight", [](GgufWriter& g) { g.SetU32("llama.embedding_length", 64); }},
    {"llama.attention.head_count", [](GgufWriter& g) { g.SetU32("llama.attention.head_count", 0); }},
    {"attn_q.weight", [](GgufWriter& g) { g.SetU32("llama.attention.head_count", 4); }},
    {"head_count_kv", [](GgufWriter& g) { g.SetU32("llama.attention.head_count_kv", 3); }},
    {"head_count_kv",
     [](GgufWriter& g) {
       g.SetU32s("llama.attention.head_count_kv", std::vector<uint32_t>{1, 2});
     }},
    {"head_count_kv", [](GgufWriter& g) { g.SetU32s("llama.attention.head_count_kv", {}); }},
    {"attention.key_length", [](GgufWriter& g) { g.SetU32("llama.attention.key_length", 0); }},
    {"attention.value_length", [](GgufWriter& g) { g.SetU32("llama.attention.value_length", 8); }},
    {"rope.dimension_count", [](GgufWriter& g) { g.SetU32("llama.rope.dimension_count", 8); }},
    {"rope.freq_base", [](GgufWriter& g) { g.SetF32("llama.rope.freq_base", 0.0f); }},
    {"rope.freq_base", [](GgufWriter& g) { g.SetF32("llama.rope.freq_base", std::nanf("")); }},
    {"rms_epsilon", [](GgufWriter& g) { g.SetF32("llama.attention.layer_norm_rms_epsilon", -1.0f); }},
    {"rope.scaling.type", [](GgufWriter& g) { g.SetString("llama.rope.scaling.type", "longrope"); }},
    {"rope.scaling.factor", [](GgufWriter& g) { g.SetString("llama.rope.scaling.type", "linear"); }},
    {"rope.dimension_sections",
     [](GgufWriter& g) {
       g.SetU32s("llama.rope.dimension_sections", std::vector<uint32_t>{1, 2, 3});
     }},
    {"expert_count", [](GgufWriter& g) { g.SetU32("llama.expert_count", 8); }},
    {"max_alibi_bias", [](GgufWriter& g) { g.SetF32("llama.attention.max_alibi_bias", 8.0f); }},
    {"context length", [](GgufWriter& g) { g.SetU32("llama.context_length", 0xFFFFFFFF); }},
    {"llama.vocab_size", [](GgufWriter& g) { g.SetU32("llama.vocab_size", 7); }},
    {"tokenizer.ggml.model", [](GgufWriter& g) { g.SetString("tokenizer.ggml.model", "bert"); }},
    {"tokenizer.ggml.pre", [](GgufWriter& g) { g.SetString("tokenizer.ggml.pre", "falcon"); }},
    {"tokenizer.ggml.pre", [](GgufWriter& g) { g.Remove("tokenizer.ggml.pre"); }},
    {"tokenizer.ggml.tokens", [](GgufWriter& g) { g.SetStrings("tokenizer.ggml.tokens", {}); }},
    {"tokenizer.ggml.token_type", [](GgufWriter& g) { g.SetI32s("tokenizer.ggml.token_type", {}); }},
    {"tokenizer.ggml.token_type",
     [](GgufWriter& g) { g.SetI32s("tokenizer.ggml.token_type", std::vector<int32_t>(448, 9)); }},
    {"tokenizer.ggml.merges",
     [](GgufWriter& g) { g.SetStrings("tokenizer.ggml.merges", std::vector<std::string>{"nospace"}); }},
    {"tokenizer.ggml.merges", [](GgufWriter& g) { g.SetF32("tokenizer.ggml.merges", 1.0f); }},
    {"tokenizer.ggml.bos_token_id", [](GgufWriter& g) { g.SetU32("tokenizer.ggml.bos_token_id", 448); }},
    {"tokenizer.ggml.add_bos_token", [](GgufWriter& g) { g.SetU32("tokenizer.ggml.add_bos_token", 1); }},
    {"twice", [](GgufWriter& g) { g.AddTensor("output_norm.weight", {32}, 0, std::string(128, '\0')); }},
    {"blk.0.attn_output.bias",
     [](GgufWriter& g) { g.AddTensor("blk.0.attn_output.bias", {32}, 0, std::string(128, '\0')); }},
    {"rope_factors_long",
     [](GgufWriter& g) { g.AddTensor("rope_factors_long.weight", {8}, 0, std::string(32, '\0')); }},
    {"rope_freqs", [](GgufWriter& g) { g.AddTensor("rope_freqs.weight", {4}, 0, std::string(16, '\x01')); }},
    {"rope_freqs", [](GgufWriter& g) { g.AddTensor("rope_freqs.weight", {8}, 0, std::string(32, '\0')); }},
    {"IQ4_NL", [](GgufWriter& g) { g.AddTensor("x", {32}, 20, std::string(18, '\0')); }},
    {"no multiple", [](GgufWriter& g) { g.AddTensor("x", {33}, 2, std::string(36, '\0')); }},
    {"n_dims", [](GgufWriter& g) { g.AddTensor("x", {}, 0, std::string(4, '\0')); }},
    {"n_dims",
     [](GgufWriter& g) {
       g.AddTensor("x", {1, 1, 1, 1, 1}, 0, std::string(4, '\0'));
     }},
    {"dims", [](GgufWriter& g) { g.AddTensor("x", {0}, 0, ""); }},
    {"dims",
     [](GgufWriter& g) {
       g.AddTensor("x", {1ull << 32, 1ull << 32}, 0, "");
     }},
    {"name of tensor",
     [](GgufWriter& g) { g.AddTensor(std::string(64, 'x'), {1}, 0, std::string(4, '\0')); }},
    {"array of arrays",
     [](GgufWriter& g) { g.SetRaw("x", 9, std::string("\x09\0\0\0\x01\0\0\0\0\0\0\0", 12)); }},
    {"bool", [](GgufWriter& g) { g.SetRaw("x", 7, "\x02"); }},
    {"value type", [](GgufWriter& g) { g.SetRaw("x", 13, std::string(8, '\0')); }},
    {"is missing", [](GgufWriter& g) { g.Remove("blk.0.attn_v.weight"); }},
};

TEST_F(ModelMutationTest, EachKnownFaultOfAGgufFileIsNamed) {
  for (const NamedMutation& mutation : kGgufMutations) {
    GgufWriter gguf = TinyModel(Small()).Gguf();
    mutation.edit(gguf);
    EXPECT_THAT(Load(gguf.Finish()), StatusIs(absl::StatusCode::kInvalidArgument,
                                              AllOf(HasSubstr(path()), HasSubstr(mutation.field))));
  }
}

TEST_F(ModelMutationTest, SmallFilesThatClaimMuchFailAtOnce) {
  // A header of 43 bytes that announces 2^60 entries.
  std::string bytes = "GGUF";
  AppendLittle<uint32_t>(&bytes, 3);
  AppendLittle<uint64_t>(&bytes, 0);
  AppendLittle<uint64_t>(&bytes, uint64_t{1} << 60);
  bytes.resize(43);
  EXPECT_THAT(Load(bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("metadata_kv_count")));
  EXPECT_THAT(Load("GG"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("magic")));
  EXPECT_THAT(Load("not a model"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("magic")));
  EXPECT_THAT(Load(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty")));
  EXPECT_THAT(Model::Load("/dev/null"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("regular file")));
}

TEST_F(ModelMutationTest, DuplicateKeysAndOverlapsAreErrors) {
  std::vector<GgufWriter::Field> fields;
  GgufWriter gguf = TinyModel(Small()).Gguf();
  gguf.SetU32("a.x", 1);
  gguf.SetU32("a.y", 1);
  std::string bytes = gguf.Finish(&fields);
  for (const GgufWriter::Field& field : fields) {
    if (field.name == "a.y key") bytes[field.offset + 2] = 'x';
  }
  EXPECT_THAT(Load(bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  bytes = TinyModel(Small()).Gguf().Finish(&(fields = {}));
  for (const GgufWriter::Field& field : fields) {
    if (field.name == "output_norm.weight offset") std::memset(bytes.data() + field.offset, 0, 8);
  }
  EXPECT_THAT(Load(bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlaps")));
}

class FolderMutationTest : public ::testing::Test {
 protected:
  FolderMutationTest() { TinyModel(Small()).WriteHuggingFace(folder()); }
  std::string folder() const { return dir_.path() + "/model"; }
  std::string File(const std::string& name) const { return folder() + "/" + name; }
  absl::StatusOr<std::shared_ptr<const Model>> LoadWith(const std::string& name, const std::string& bytes) {
    const std::string good = ReadFileOrDie(File(name));
    WriteFileOrDie(File(name), bytes);
    absl::StatusOr<std::shared_ptr<const Model>> model = Model::Load(folder());
    WriteFileOrDie(File(name), good);
    return model;
  }
  // model.safetensors with its header edited.
  template <typename Edit>
  std::string Safetensors(Edit edit) const {
    const std::string good = ReadFileOrDie(File("model.safetensors"));
    const uint64_t size = LoadLittle<uint64_t>(AsBytes(good));
    Json header = Json::parse(good.substr(8, size));
    edit(header);
    std::string out;
    AppendField(&out, header.dump());
    return out + good.substr(8 + size);
  }

  TempDir dir_;
};

TEST_F(FolderMutationTest, EachKnownFaultOfASafetensorsHeaderIsNamed) {
  struct Mutation {
    const char* field;
    void (*edit)(Json&);
  };
  const Mutation mutations[] = {
      {"dtype", [](Json& h) { h["model.norm.weight"]["dtype"] = "F8_E4M3"; }},
      {"dtype", [](Json& h) { h["model.norm.weight"]["dtype"] = "I32"; }},
      {"dtype", [](Json& h) { h["model.norm.weight"]["dtype"] = 3; }},
      {"dtype", [](Json& h) { h["model.norm.weight"].erase("dtype"); }},
      {"shape", [](Json& h) { h["model.norm.weight"]["shape"] = Json::array({33}); }},
      {"shape", [](Json& h) { h["model.norm.weight"]["shape"] = Json::array({-32}); }},
      {"shape",
       [](Json& h) {
         h["model.norm.weight"]["shape"] = Json::array({1ull << 62, 1ull << 62});
       }},
      {"shape", [](Json& h) { h["model.norm.weight"]["shape"] = "32"; }},
      {"shape",
       [](Json& h) {
         h["model.norm.weight"]["shape"] = Json::array({2, 16});
       }},
      {"data_offsets",
       [](Json& h) {
         h["model.norm.weight"]["data_offsets"] = Json::array({0, 1ull << 60});
       }},
      {"data_offsets",
       [](Json& h) {
         h["model.norm.weight"]["data_offsets"] = Json::array({128, 0});
       }},
      {"data_offsets", [](Json& h) { h["model.norm.weight"]["data_offsets"] = Json::array({0}); }},
      {"a scalar",
       [](Json& h) {
         Json& entry = h["model.norm.weight"];
         const uint64_t begin = entry["data_offsets"][0].get<uint64_t>();
         entry["shape"] = Json::array();
         entry["data_offsets"] = Json::array({begin, begin + 4});
         h["x"] = {{"dtype", "F32"},
                   {"shape", Json::array({31})},
                   {"data_offsets", Json::array({begin + 4, begin + 128})}};
       }},
      {"overlaps",
       [](Json& h) {
         h["model.norm.weight"]["data_offsets"] = Json::array({0, 128});
       }},
      {"hole", [](Json& h) { h.erase("model.layers.0.mlp.up_proj.weight"); }},
      {"data", [](Json& h) { h.erase("model.norm.weight"); }},
      {"model.norm.weight", [](Json& h) { h["model.norm.weight"] = 1; }},
      {"is missing",
       [](Json& h) { h["lm_head.bias"] = h["model.norm.weight"], h.erase("model.norm.weight"); }},
  };
  for (const Mutation& mutation : mutations) {
    EXPECT_THAT(
        LoadWith("model.safetensors", Safetensors(mutation.edit)),
        StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(folder()), HasSubstr(mutation.field))));
  }
}

TEST_F(FolderMutationTest, HeaderLengthsAndJsonAreBounded) {
  std::string good = ReadFileOrDie(File("model.safetensors"));
  for (uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 60, ~uint64_t{0}}) {
    std::memcpy(good.data(), &size, sizeof(size));
    EXPECT_THAT(LoadWith("model.safetensors", good),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("header")));
  }
  const std::pair<const char*, std::string> jsons[] = {
      {"nested", std::string(100000, '[')},
      {"nested", R"({"a":)" + std::string(65, '[') + std::string(65, ']') + "}"},
      {"valid JSON", R"({"hidden_size": 1e999})"},
      {"valid JSON", "{\"model_type\": \"\xFF\xFE\"}"},
      {"valid JSON", R"({"model_type": "llama")"},
      {"twice", R"({"model_type": "llama", "model_type": "llama"})"},
      {"object", "[]"},
      {"model_type", "{}"},
      {"bytes", std::string((1 << 20) + 1, ' ')},
  };
  for (const auto& [message, text] : jsons) {
    EXPECT_THAT(LoadWith("config.json", text), StatusIs(absl::StatusCode::kInvalidArgument,
                                                        AllOf(HasSubstr("config.json"), HasSubstr(message))));
  }
}

}  // namespace
}  // namespace epic
