// The tiny random models and the arithmetic that oracles run on, and engines over them. What cannot be
// made aborts the test: there is nothing to go on with. Any thread; engines are the caller's. Tests
// only.
#ifndef EPIC_SERVICES_ENGINE_TESTING_TINY_ENGINES_H_
#define EPIC_SERVICES_ENGINE_TESTING_TINY_ENGINES_H_

#include <memory>
#include <string>
#include <vector>

#include "services/engine/engine.h"
#include "services/model/testing/gguf_writer.h"
#include "services/model/testing/tiny_model.h"

namespace epic::testing {

struct TinyCase {
  std::string name;
  TinyModelSpec spec;
};

// llama, llama with Llama-3 scaling, llama with linear scaling, llama with heads wider than hidden / heads,
// mistral, qwen2 (biases, separate head), qwen3 (norms of q and k).
std::vector<TinyCase> TinyCases();
// Those and qwen2 with YaRN, which the reference in double precision does not know.
std::vector<TinyCase> GoldenCases();
// One of GoldenCases. Aborts when there is none of that name.
TinyCase TinyCaseOf(const std::string& name);

// Writes the GGUF file to a temporary folder and loads it. Aborts the test when that fails.
std::shared_ptr<const Model> LoadTiny(const TinyModelSpec& spec);

// A tiny model (F32, with a head of its own) that computes NaN for every text with the token `poison`, and
// numbers for every other.
GgufWriter PoisonedTiny(TokenId poison);
std::shared_ptr<const Model> LoadGguf(const GgufWriter& gguf);

// Small panels, so that prompts of tests need several. f32 throughout, or bf16 throughout.
EngineOptions TinyOptions(ComputeFormat format);
std::unique_ptr<Engine> MakeEngine(std::shared_ptr<const Model> model, const EngineOptions& options);

// The formats that this CPU computes in: f32, and bf16 where it is native.
std::vector<ComputeFormat> NativeFormats();
std::string NameOf(ComputeFormat format);

// The longest golden prompt of the default model: 322 ids of English text.
std::vector<TokenId> EnglishIds();

}  // namespace epic::testing

#endif  // EPIC_SERVICES_ENGINE_TESTING_TINY_ENGINES_H_
