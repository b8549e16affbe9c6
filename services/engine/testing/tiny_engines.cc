#include "services/engine/testing/tiny_engines.h"

#include <cstdio>
#include <limits>
#include <sstream>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "kernels/matmul/matmul.h"

namespace epic::testing {

std::vector<TinyCase> TinyCases() {
  std::vector<TinyCase> cases;
  cases.push_back({"llama", {}});
  TinyModelSpec llama3;
  llama3.rope = {.scaling = RopeScaling::kLlama3, .factor = 8.0};
  cases.push_back({"llama3", llama3});
  TinyModelSpec linear;
  linear.rope = {.scaling = RopeScaling::kLinear, .factor = 4.0};
  cases.push_back({"linear", linear});
  TinyModelSpec wide;
  wide.head_dim = 32;
  wide.layers = 3;
  cases.push_back({"wide", wide});
  TinyModelSpec mistral;
  mistral.architecture = Architecture::kMistral;
  mistral.tied = false;
  cases.push_back({"mistral", mistral});
  TinyModelSpec qwen2;
  qwen2.architecture = Architecture::kQwen2;
  qwen2.tied = false;
  cases.push_back({"qwen2", qwen2});
  TinyModelSpec qwen3;
  qwen3.architecture = Architecture::kQwen3;
  qwen3.head_dim = 32;
  cases.push_back({"qwen3", qwen3});
  return cases;
}

std::vector<TinyCase> GoldenCases() {
  std::vector<TinyCase> cases = TinyCases();
  TinyModelSpec yarn;
  yarn.architecture = Architecture::kQwen2;
  yarn.rope = {.scaling = RopeScaling::kYarn, .factor = 4.0, .original_context_length = 128};
  cases.push_back({"yarn", yarn});
  return cases;
}

TinyCase TinyCaseOf(const std::string& name) {
  for (TinyCase& tiny : GoldenCases()) {
    if (tiny.name == name) return tiny;
  }
  std::fprintf(stderr, "no tiny model '%s'\n", name.c_str());
  EPIC_CHECK(false);
}

GgufWriter PoisonedTiny(TokenId poison) {
  const TinyModelSpec spec = TinyCaseOf("qwen2").spec;
  GgufWriter gguf = TinyModel(spec).Gguf();
  std::string nan;
  AppendLittle(&nan, std::numeric_limits<float>::quiet_NaN());
  gguf.Overwrite("token_embd.weight", uint64_t{poison} * spec.hidden * sizeof(float), nan);
  return gguf;
}

std::shared_ptr<const Model> LoadTiny(const TinyModelSpec& spec) { return LoadGguf(TinyModel(spec).Gguf()); }

std::shared_ptr<const Model> LoadGguf(const GgufWriter& gguf) {
  const TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  WriteFileOrDie(path, gguf.Finish());
  auto model = Model::Load(path);
  if (!model.ok()) std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
  EPIC_CHECK(model.ok());
  return *std::move(model);
}

EngineOptions TinyOptions(ComputeFormat format) {
  EngineOptions options;
  options.threads = 2;
  options.compute = format;
  options.kv_dtype = format == ComputeFormat::kF32 ? KvDtype::kF32 : KvDtype::kBf16;
  options.panel_tokens = 48;
  options.memory_bytes = 64ull << 20;
  options.prefix_cache_bytes = 0;
  return options;
}

std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const Model> model, const EngineOptions& options) {
  auto engine = Engine::Create(std::move(model), options, SystemClock::Get());
  if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
  EPIC_CHECK(engine.ok());
  return *std::move(engine);
}

std::vector<ComputeFormat> NativeFormats() {
  if (BestMatMulFormat() == DType::kBf16) return {ComputeFormat::kF32, ComputeFormat::kBf16};
  return {ComputeFormat::kF32};
}

std::string NameOf(ComputeFormat format) { return format == ComputeFormat::kF32 ? "f32" : "bf16"; }

std::vector<TokenId> EnglishIds() {
  std::istringstream file(ReadFileOrDie(SourceDir() + "/services/engine/golden/default_model.txt"));
  std::vector<TokenId> longest;
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("prompt ")) continue;
    std::istringstream in(line.substr(7));
    std::vector<TokenId> ids;
    TokenId id;
    while (in >> id) ids.push_back(id);
    if (ids.size() > longest.size()) longest = ids;
  }
  return longest;
}

}  // namespace epic::testing
