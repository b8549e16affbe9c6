// Model folders and files made to harm: every one is an error that names its field, or a model.
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/model.h"
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

class ModelHostileTest : public ::testing::Test {
 protected:
  std::string folder() const { return dir_.path() + "/model"; }
  std::string File(const std::string& name) const { return folder() + "/" + name; }
  void WriteFolder(TokenizerKind kind = TokenizerKind::kBpe) {
    TinyModelSpec spec;
    spec.layers = 1;
    spec.tokenizer = kind;
    TinyModel(spec).WriteHuggingFace(folder());
  }
  absl::Status LoadWith(const std::string& name, const std::string& bytes) {
    WriteFolder();
    WriteFileOrDie(File(name), bytes);
    return Model::Load(folder()).status();
  }
  template <typename Edit>
  absl::Status LoadEdited(const std::string& name, Edit edit, TokenizerKind kind = TokenizerKind::kBpe) {
    WriteFolder(kind);
    Json json = Json::parse(ReadFileOrDie(File(name)));
    edit(json);
    WriteFileOrDie(File(name), json.dump());
    return Model::Load(folder()).status();
  }

  TempDir dir_;
};

TEST_F(ModelHostileTest, NumbersOfAConfigurationAreNumbersOfTheirKind) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                          "intermediate_size", "vocab_size", "max_position_embeddings", "head_dim"}) {
    for (const Json& value : {Json("64"), Json(-1), Json(64.0), Json(true), Json::array({64}), Json::object(),
                              Json(1ull << 32), Json(18446744073709551615ull), Json(0)}) {
      EXPECT_THAT(LoadEdited("config.json", [&](Json& json) { json[key] = value; }),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(key)))
          << value;
    }
  }
  for (const char* key : {"rope_theta", "rms_norm_eps"}) {
    for (const Json& value : {Json("1e-5"), Json::array(), Json(false)}) {
      EXPECT_THAT(LoadEdited("config.json", [&](Json& json) { json[key] = value; }),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(key)))
          << value;
    }
  }
  for (const double base : {1.0, 0.5, 1e-300}) {
    EXPECT_THAT(LoadEdited("config.json", [&](Json& json) { json["rope_theta"] = base; }),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rope.freq_base")))
        << base;
  }
}

TEST_F(ModelHostileTest, IdsOfATokenizerStayWithinTheEmbedding) {
  struct Case {
    const char* words;
    void (*edit)(Json&);
  };
  const Case cases[] = {
      {"embedding 448 rows", [](Json& j) { j["added_tokens"][0]["id"] = 448; }},
      {"embedding 448 rows", [](Json& j) { j["added_tokens"][0]["id"] = 18446744073709551615ull; }},
      {"added_tokens.id", [](Json& j) { j["added_tokens"][0]["id"] = -1; }},
      {"added_tokens.id", [](Json& j) { j["added_tokens"][0]["id"] = "7"; }},
      {"must be given", [](Json& j) { j["added_tokens"][0]["content"] = ""; }},
      {"is given to", [](Json& j) { j["added_tokens"][0]["id"] = 100; }},
      {"must hold objects", [](Json& j) { j["added_tokens"][0] = Json::array(); }},
      {"embedding 448 rows", [](Json& j) { j["model"]["vocab"]["zz"] = 4294967296ull; }},
      {"is given to", [](Json& j) { j["model"]["vocab"]["zz"] = 100; }},
      {"has no id", [](Json& j) { j["model"]["vocab"]["zz"] = 1.5; }},
      {"vocab", [](Json& j) { j["model"]["vocab"] = Json::array(); }},
      {"merges", [](Json& j) { j["model"]["merges"][0] = "no such"; }},
      {"merges",
       [](Json& j) {
         j["model"]["merges"][0] = Json::array({"a", "b", "c"});
       }},
      {"merges",
       [](Json& j) {
         j["model"]["merges"][0] = Json::array({1, 2});
       }},
      {"merges", [](Json& j) { j["model"]["merges"] = "a b"; }},
      {"model", [](Json& j) { j["model"] = 3; }},
  };
  for (const Case& each : cases) {
    EXPECT_THAT(LoadEdited("tokenizer.json", each.edit),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("tokenizer.json"), HasSubstr(each.words))))
        << each.words;
  }
}

// Every object of a tokenizer.json replaced by a value of each other kind: an error, or a model all the same.
TEST_F(ModelHostileTest, ATokenizerOfOtherKindsOfValuesIsAnErrorOrAModel) {
  for (const TokenizerKind kind : {TokenizerKind::kBpe, TokenizerKind::kSpm}) {
    for (const char* path : {"/model", "/model/type", "/model/vocab", "/model/merges", "/pre_tokenizer",
                             "/normalizer", "/post_processor", "/decoder", "/added_tokens"}) {
      for (const Json& value :
           {Json(nullptr), Json(1), Json("x"), Json::array({1}), Json({{"type", 7}}),
            Json({{"type", "Sequence"}}), Json({{"type", "Sequence"}, {"normalizers", 3}})}) {
        const absl::Status status = LoadEdited(
            "tokenizer.json", [&](Json& json) { json[Json::json_pointer(path)] = value; }, kind);
        if (status.ok()) continue;
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path << value;
      }
    }
  }
}

TEST_F(ModelHostileTest, AFileOfTheFolderThatIsNoFileIsAnErrorAtOnce) {
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors",
                           "generation_config.json", "chat_template.jinja"}) {
    WriteFolder();
    ::unlink(File(name).c_str());
    ASSERT_EQ(::mkfifo(File(name).c_str(), 0600), 0);
    EXPECT_THAT(Model::Load(folder()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("regular file")))
        << name;
    ::unlink(File(name).c_str());
    ASSERT_EQ(::mkdir(File(name).c_str(), 0700), 0);
    EXPECT_THAT(Model::Load(folder()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("regular file")))
        << name;
    ::rmdir(File(name).c_str());
  }
}

TEST_F(ModelHostileTest, AnIndexNamesFilesOfItsFolderOnly) {
  for (const char* name : {"../model.safetensors", "/etc/model.safetensors", "sub/x.safetensors",
                           ".safetensors/..", "", "model.bin"}) {
    WriteFolder();
    ::unlink(File("model.safetensors").c_str());
    const Json index = {{"weight_map", {{"model.norm.weight", name}}}};
    WriteFileOrDie(File("model.safetensors.index.json"), index.dump());
    EXPECT_THAT(Model::Load(folder()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("weight_map")))
        << name;
  }
}

TEST_F(ModelHostileTest, HeadsThatDoNotFitTogetherAreNamed) {
  struct Case {
    const char* words;
    void (*edit)(GgufWriter&);
  };
  const Case cases[] = {
      {"head_count_kv", [](GgufWriter& g) { g.SetU32("llama.attention.head_count_kv", 0); }},
      {"head_count_kv", [](GgufWriter& g) { g.SetU32("llama.attention.head_count_kv", 8); }},
      {"head_count_kv", [](GgufWriter& g) { g.SetU32("llama.attention.head_count_kv", 3); }},
      {"must be even",
       [](GgufWriter& g) {
         g.SetU32("llama.attention.key_length", 15);
         g.SetU32("llama.attention.value_length", 15);
         g.SetU32("llama.rope.dimension_count", 15);
       }},
      {"rope.dimension_count", [](GgufWriter& g) { g.SetU32("llama.rope.dimension_count", 15); }},
      {"rope.dimension_count", [](GgufWriter& g) { g.SetU32("llama.rope.dimension_count", 32); }},
      {"rope.freq_base", [](GgufWriter& g) { g.SetF32("llama.rope.freq_base", 1.0f); }},
      {"rope.freq_base", [](GgufWriter& g) { g.SetF32("llama.rope.freq_base", -1e6f); }},
  };
  for (const Case& each : cases) {
    GgufWriter gguf = TinyModel(TinyModelSpec{}).Gguf();
    each.edit(gguf);
    const std::string path = dir_.path() + "/model.gguf";
    WriteFileOrDie(path, gguf.Finish());
    EXPECT_THAT(Model::Load(path), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.words)))
        << each.words;
  }
}

// Padding and the data of others are no hiding place: offsets that share one byte overlap.
TEST_F(ModelHostileTest, TensorsThatShareABlockOverlap) {
  std::vector<GgufWriter::Field> fields;
  std::string bytes = TinyModel(TinyModelSpec{}).Gguf().Finish(&fields);
  const auto offset_of = [&](const std::string& name) {
    for (const GgufWriter::Field& field : fields) {
      if (field.name == name + " offset") return field.offset;
    }
    ADD_FAILURE() << name;
    return uint64_t{0};
  };
  const uint64_t at = offset_of("blk.1.ffn_up.weight");
  uint64_t offset = 0;
  std::memcpy(&offset, bytes.data() + at, sizeof(offset));
  offset -= 32;
  std::memcpy(bytes.data() + at, &offset, sizeof(offset));
  const std::string path = dir_.path() + "/model.gguf";
  WriteFileOrDie(path, bytes);
  EXPECT_THAT(Model::Load(path), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlaps")));
}

}  // namespace
}  // namespace epic
