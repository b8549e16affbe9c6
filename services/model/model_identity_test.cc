// What changes the identity of a model and what does not.
#include <filesystem>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/model/model.h"
#include "services/model/testing/tiny_model.h"

namespace epic {
namespace {

using epic::testing::GgufWriter;
using epic::testing::TempDir;
using epic::testing::TinyModel;
using epic::testing::TinyModelSpec;
using epic::testing::WriteFileOrDie;

class ModelIdentityTest : public ::testing::Test {
 protected:
  std::string IdentityOf(const std::string& bytes, const std::string& name = "model.gguf") {
    const std::string path = dir_.path() + "/" + name;
    WriteFileOrDie(path, bytes);
    const auto model = Model::Load(path);
    EXPECT_OK(model);
    return model.ok() ? (*model)->identity().Hex() : "";
  }
  std::string IdentityOf(const GgufWriter& gguf) { return IdentityOf(gguf.Finish()); }

  TempDir dir_;
};

TEST_F(ModelIdentityTest, IsTheSameForTheSameFileAtAnotherPlace) {
  const std::string bytes = TinyModel(TinyModelSpec{}).Gguf().Finish();
  const std::string identity = IdentityOf(bytes);
  EXPECT_EQ(identity, IdentityOf(bytes, "another name"));
  // A golden value: the maker, the reader and the encoding are the same on every machine.
  EXPECT_EQ(identity, "451a66485c42b8ea2f576de424b2a7129fe2d14159cb3d1a866842b7c57b9e65");
}

TEST_F(ModelIdentityTest, IgnoresNameTemplateLimitsAndLayoutOfTheFile) {
  const std::string identity = IdentityOf(TinyModel(TinyModelSpec{}).Gguf());
  GgufWriter gguf = TinyModel(TinyModelSpec{}).Gguf();
  gguf.SetString("general.name", "another");
  gguf.SetString("tokenizer.chat_template", "{{ messages }}");
  gguf.SetU32("llama.context_length", 99);
  gguf.SetU64("llama.block_count", 2);
  gguf.set_alignment(256);
  gguf.set_version(2);
  EXPECT_EQ(IdentityOf(gguf), identity);
}

TEST_F(ModelIdentityTest, ChangesWithEveryWeightTokenizerAndRotaryParameter) {
  std::map<std::string, std::string> identities;
  const auto expect_new = [&](const std::string& what, const std::string& identity) {
    const auto [it, added] = identities.emplace(identity, what);
    EXPECT_TRUE(added) << what << " gives the identity of " << it->second;
  };
  const TinyModel tiny(TinyModelSpec{});
  expect_new("the model", IdentityOf(tiny.Gguf()));
  std::vector<GgufWriter::Field> fields;
  std::string bytes = tiny.Gguf().Finish(&fields);
  for (uint64_t at : {fields.back().offset, fields.back().offset + fields.back().size - 8}) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    expect_new("one bit of a weight", IdentityOf(bytes));
  }
  const std::pair<const char*, void (*)(GgufWriter&)> edits[] = {
      {"rotary base", [](GgufWriter& gguf) { gguf.SetF32("llama.rope.freq_base", 10001.0f); }},
      {"linear scaling",
       [](GgufWriter& gguf) {
         gguf.SetString("llama.rope.scaling.type", "linear");
         gguf.SetF32("llama.rope.scaling.factor", 2.0f);
       }},
      {"another factor",
       [](GgufWriter& gguf) {
         gguf.SetString("llama.rope.scaling.type", "linear");
         gguf.SetF32("llama.rope.scaling.factor", 3.0f);
       }},
      {"epsilon", [](GgufWriter& gguf) { gguf.SetF32("llama.attention.layer_norm_rms_epsilon", 1e-6f); }},
      {"pre-tokenizer", [](GgufWriter& gguf) { gguf.SetString("tokenizer.ggml.pre", "gpt-2"); }},
      {"a special id", [](GgufWriter& gguf) { gguf.SetU32("tokenizer.ggml.eos_token_id", 1); }},
      {"BOS added", [](GgufWriter& gguf) { gguf.SetBool("tokenizer.ggml.add_bos_token", true); }},
  };
  for (const auto& [what, edit] : edits) {
    GgufWriter gguf = tiny.Gguf();
    edit(gguf);
    expect_new(what, IdentityOf(gguf));
  }
  TinyModelSpec spec;
  spec.rope.scaling = RopeScaling::kLlama3;
  spec.rope.factor = 8.0;
  expect_new("Llama-3 divisors", IdentityOf(TinyModel(spec).Gguf()));
  spec.rope.factor = 9.0;
  expect_new("other divisors", IdentityOf(TinyModel(spec).Gguf()));
  spec = TinyModelSpec{};
  spec.matrix_type = TensorType::kF16;
  expect_new("another storage type", IdentityOf(TinyModel(spec).Gguf()));
}

TEST_F(ModelIdentityTest, OfAFolderDependsOnConfigurationAndNotOnSharding) {
  const TinyModel tiny(TinyModelSpec{});
  tiny.WriteHuggingFace(dir_.path() + "/one");
  tiny.WriteHuggingFace(dir_.path() + "/three", 3);
  ASSERT_OK_AND_ASSIGN(const auto one, Model::Load(dir_.path() + "/one"));
  ASSERT_OK_AND_ASSIGN(const auto three, Model::Load(dir_.path() + "/three/"));
  EXPECT_EQ(one->identity(), three->identity());
  TinyModelSpec spec;
  spec.rope = {.scaling = RopeScaling::kLlama3, .factor = 8.0};
  TinyModel(spec).WriteHuggingFace(dir_.path() + "/llama3");
  ASSERT_OK_AND_ASSIGN(const auto llama3, Model::Load(dir_.path() + "/llama3"));
  EXPECT_NE(one->identity(), llama3->identity());
}

}  // namespace
}  // namespace epic
