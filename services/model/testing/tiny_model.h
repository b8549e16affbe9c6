// Makes tiny random models of every architecture: the same weights as a GGUF file and as a Hugging Face
// folder.
//
// Deterministic in the spec: the same spec gives the same bytes on every machine (kLlama3 divisors excepted,
// which pow makes). Weights are drawn in f32,
// encoded in the type asked for and decoded again, so that both files hold exactly the same values (the
// folder in F32 where the type is quantised). In the GGUF file of llama and mistral the rows of q and k are
// permuted for NORM rotary pairing, as converters do; the folder has them for NEOX. Immutable after
// construction. Tests only.
#ifndef EPIC_SERVICES_MODEL_TESTING_TINY_MODEL_H_
#define EPIC_SERVICES_MODEL_TESTING_TINY_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "services/model/model.h"
#include "services/model/testing/gguf_writer.h"

namespace epic::testing {

struct TinyRope {
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                    // all but kNone
  double low_freq_factor = 1.0;           // kLlama3
  double high_freq_factor = 4.0;          // kLlama3
  uint32_t original_context_length = 64;  // kLlama3, kYarn
};

struct TinyModelSpec {
  Architecture architecture = Architecture::kLlama;
  uint32_t layers = 2;
  uint32_t hidden = 64;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t ffn = 96;
  uint32_t vocab = 448;
  uint32_t context_length = 512;
  // Of all matrices but those named in `types`. A K-quant wants widths that are multiples of 256 (hidden, ffn
  // and heads * head_dim), the other quantised ones multiples of 32.
  TensorType matrix_type = TensorType::kF32;
  // By the last parts of the GGUF name: "token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output",
  // "ffn_gate", "ffn_up", "ffn_down".
  std::map<std::string, TensorType> types;
  TinyRope rope;
  bool tied = true;
  TokenizerKind tokenizer = TokenizerKind::kBpe;
  uint64_t seed = 1;
};

class TinyModel {
 public:
  explicit TinyModel(TinyModelSpec spec);

  const TinyModelSpec& spec() const { return spec_; }
  // The writer, for tests that change a key before they write the file.
  GgufWriter Gguf() const;
  // Writes the GGUF file.
  void WriteGguf(const std::string& path) const;
  // Writes config.json, tokenizer.json, tokenizer_config.json, generation_config.json and model.safetensors
  // into the folder, which is made if it does not exist; with `shards` > 1 that many model-*.safetensors and
  // their index instead.
  void WriteHuggingFace(const std::string& folder, int shards = 1) const;
  std::string ConfigJson() const;
  // The values of a tensor by its Hugging Face name, row-major in f32. REQUIRES: it exists.
  const std::vector<float>& Values(const std::string& name) const;

 private:
  struct Weight {
    std::string hf_name;
    std::string gguf_name;
    uint64_t rows;
    uint64_t cols;
    bool vector;
    uint32_t permuted_heads;  // heads of q or k whose rows the GGUF file permutes; 0: none
    TensorType type;
    std::string encoded;  // in `type`, rows in the order of the folder
    std::vector<float> values;
  };

  TensorType TypeOf(const std::string& role) const;
  void AddMatrix(std::string hf_name, std::string gguf_name, const std::string& role, uint64_t rows,
                 uint64_t cols, uint32_t permuted_heads, uint64_t seed);
  void AddVector(std::string hf_name, std::string gguf_name, uint64_t size, double mean,
                 uint32_t permuted_heads, uint64_t seed);
  void AddLayer(uint32_t layer);
  std::string GgufBytes(const Weight& weight) const;
  std::string SafetensorsBytes(size_t begin, size_t end) const;
  bool IsLlamaLike() const;

  const TinyModelSpec spec_;
  std::vector<Weight> weights_;
};

// Writes a whole file. Aborts the test when it cannot.
void WriteFileOrDie(const std::string& path, std::string_view bytes);

}  // namespace epic::testing

#endif  // EPIC_SERVICES_MODEL_TESTING_TINY_MODEL_H_
