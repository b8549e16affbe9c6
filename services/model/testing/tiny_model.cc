#include "services/model/testing/tiny_model.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/random.h"
#include "services/model/testing/quantize.h"
#include "services/model/testing/tiny_tokenizer.h"

namespace epic::testing {
namespace {

using Json = nlohmann::ordered_json;

bool IsPlain(TensorType type) { return BlockShapeOf(type).values == 1; }

// One seed per tensor, so that a tensor's values do not depend on the others.
uint64_t SeedOf(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull ^ seed;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return hash;
}

// Normal enough, with mean 0 and standard deviation 1, by additions alone: the same bits on every machine.
double Normal(Rng* rng) {
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += rng->Uniform();
  return sum;
}

// The row of the folder that stands at row `row` of the GGUF file: NEOX pairs (j, j + half) become NORM pairs
// (2j, 2j + 1).
uint64_t SourceRow(uint64_t row, uint64_t head_dim) {
  const uint64_t head = row / head_dim, within = row % head_dim;
  return head * head_dim + within / 2 + (within % 2) * (head_dim / 2);
}

std::string_view ArchitectureName(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "llama";
    case Architecture::kMistral:
      return "mistral";
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      return "qwen3";
  }
  return "";
}

// By the formula of Llama 3.1: high frequencies stay, low ones are divided by the factor, those between
// blend.
std::vector<float> Llama3Divisors(const TinyRope& rope, uint32_t head_dim) {
  std::vector<float> divisors;
  for (uint32_t i = 0; i < head_dim; i += 2) {
    const double wavelength = 2.0 * std::numbers::pi * std::pow(rope.base, static_cast<double>(i) / head_dim);
    const double turns = rope.original_context_length / wavelength;
    double share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    share = std::min(1.0, std::max(0.0, share));
    divisors.push_back(static_cast<float>(1.0 / ((1.0 - share) / rope.factor + share)));
  }
  return divisors;
}

}  // namespace

TinyModel::TinyModel(TinyModelSpec spec) : spec_(std::move(spec)) {
  const uint64_t hidden = spec_.hidden;
  AddMatrix("model.embed_tokens.weight", "token_embd.weight", "token_embd", spec_.vocab, hidden, 0,
            spec_.seed);
  for (uint32_t layer = 0; layer < spec_.layers; ++layer) AddLayer(layer);
  AddVector("model.norm.weight", "output_norm.weight", hidden, 1.0, 0, spec_.seed);
  if (!spec_.tied) AddMatrix("lm_head.weight", "output.weight", "output", spec_.vocab, hidden, 0, spec_.seed);
}

bool TinyModel::IsLlamaLike() const {
  return spec_.architecture == Architecture::kLlama || spec_.architecture == Architecture::kMistral;
}

TensorType TinyModel::TypeOf(const std::string& role) const {
  const auto it = spec_.types.find(role);
  return it == spec_.types.end() ? spec_.matrix_type : it->second;
}

void TinyModel::AddMatrix(std::string hf_name, std::string gguf_name, const std::string& role, uint64_t rows,
                          uint64_t cols, uint32_t permuted_heads, uint64_t seed) {
  Rng rng(SeedOf(seed, hf_name));
  Weight weight{std::move(hf_name), std::move(gguf_name), rows, cols, false,
                permuted_heads,     TypeOf(role),         "",   {}};
  const double sigma = role == "token_embd" ? 1.0 : 1.0 / std::sqrt(static_cast<double>(cols));
  std::vector<float> row(cols);
  for (uint64_t r = 0; r < rows; ++r) {
    if (IsKQuant(weight.type)) {
      weight.encoded += RandomKQuantRow(weight.type, cols, sigma, &rng);
      continue;
    }
    for (float& value : row) value = static_cast<float>(sigma * Normal(&rng));
    weight.encoded += EncodeRow(weight.type, row);
  }
  const Tensor tensor{"", weight.type, rows, cols, AsBytes(weight.encoded)};
  weight.values.resize(rows * cols);
  for (uint64_t r = 0; r < rows; ++r) {
    DequantizeRow(tensor, r, std::span<float>(weight.values).subspan(r * cols, cols));
  }
  weights_.push_back(std::move(weight));
}

void TinyModel::AddVector(std::string hf_name, std::string gguf_name, uint64_t size, double mean,
                          uint32_t permuted_heads, uint64_t seed) {
  Rng rng(SeedOf(seed, hf_name));
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(mean + 0.1 * Normal(&rng));
  std::string encoded = EncodeRow(TensorType::kF32, values);
  weights_.push_back({std::move(hf_name), std::move(gguf_name), 1, size, true, permuted_heads,
                      TensorType::kF32, std::move(encoded), std::move(values)});
}

void TinyModel::AddLayer(uint32_t layer) {
  const std::string hf = "model.layers." + std::to_string(layer) + ".";
  const std::string gguf = "blk." + std::to_string(layer) + ".";
  const uint64_t q_rows = uint64_t{spec_.heads} * spec_.head_dim;
  const uint64_t kv_rows = uint64_t{spec_.kv_heads} * spec_.head_dim;
  const uint64_t hidden = spec_.hidden, seed = spec_.seed;
  const uint32_t q_heads = IsLlamaLike() ? spec_.heads : 0;
  const uint32_t k_heads = IsLlamaLike() ? spec_.kv_heads : 0;
  const auto matrix = [&](const char* name, const char* role, uint64_t rows, uint64_t cols, uint32_t heads) {
    AddMatrix(hf + name + ".weight", gguf + role + ".weight", role, rows, cols, heads, seed);
  };
  AddVector(hf + "input_layernorm.weight", gguf + "attn_norm.weight", hidden, 1.0, 0, seed);
  matrix("self_attn.q_proj", "attn_q", q_rows, hidden, q_heads);
  matrix("self_attn.k_proj", "attn_k", kv_rows, hidden, k_heads);
  matrix("self_attn.v_proj", "attn_v", kv_rows, hidden, 0);
  matrix("self_attn.o_proj", "attn_output", hidden, q_rows, 0);
  if (spec_.architecture == Architecture::kQwen2) {
    AddVector(hf + "self_attn.q_proj.bias", gguf + "attn_q.bias", q_rows, 0.0, 0, seed);
    AddVector(hf + "self_attn.k_proj.bias", gguf + "attn_k.bias", kv_rows, 0.0, 0, seed);
    AddVector(hf + "self_attn.v_proj.bias", gguf + "attn_v.bias", kv_rows, 0.0, 0, seed);
  }
  if (spec_.architecture == Architecture::kQwen3) {
    AddVector(hf + "self_attn.q_norm.weight", gguf + "attn_q_norm.weight", spec_.head_dim, 1.0, 0, seed);
    AddVector(hf + "self_attn.k_norm.weight", gguf + "attn_k_norm.weight", spec_.head_dim, 1.0, 0, seed);
  }
  AddVector(hf + "post_attention_layernorm.weight", gguf + "ffn_norm.weight", hidden, 1.0, 0, seed);
  matrix("mlp.gate_proj", "ffn_gate", spec_.ffn, hidden, 0);
  matrix("mlp.up_proj", "ffn_up", spec_.ffn, hidden, 0);
  matrix("mlp.down_proj", "ffn_down", hidden, spec_.ffn, 0);
}

const std::vector<float>& TinyModel::Values(const std::string& name) const {
  for (const Weight& weight : weights_) {
    if (weight.hf_name == name) return weight.values;
  }
  EPIC_CHECK(false && "no tensor of this name");
  return weights_[0].values;
}

std::string TinyModel::GgufBytes(const Weight& weight) const {
  if (weight.permuted_heads == 0) return weight.encoded;
  const uint64_t row_bytes = weight.encoded.size() / weight.rows;
  std::string out;
  for (uint64_t row = 0; row < weight.rows; ++row) {
    out += weight.encoded.substr(SourceRow(row, spec_.head_dim) * row_bytes, row_bytes);
  }
  return out;
}

GgufWriter TinyModel::Gguf() const {
  const std::string prefix(IsLlamaLike() ? "llama" : ArchitectureName(spec_.architecture));
  GgufWriter gguf;
  gguf.SetString("general.architecture", prefix);
  gguf.SetString("general.name", "tiny");
  gguf.SetU32(prefix + ".block_count", spec_.layers);
  gguf.SetU32(prefix + ".context_length", spec_.context_length);
  gguf.SetU32(prefix + ".embedding_length", spec_.hidden);
  gguf.SetU32(prefix + ".feed_forward_length", spec_.ffn);
  gguf.SetU32(prefix + ".attention.head_count", spec_.heads);
  gguf.SetU32(prefix + ".attention.head_count_kv", spec_.kv_heads);
  gguf.SetU32(prefix + ".attention.key_length", spec_.head_dim);
  gguf.SetU32(prefix + ".attention.value_length", spec_.head_dim);
  gguf.SetF32(prefix + ".attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.SetF32(prefix + ".rope.freq_base", static_cast<float>(spec_.rope.base));
  gguf.SetU32(prefix + ".rope.dimension_count", spec_.head_dim);
  const bool linear = spec_.rope.scaling == RopeScaling::kLinear;
  if (linear || spec_.rope.scaling == RopeScaling::kYarn) {
    gguf.SetString(prefix + ".rope.scaling.type", linear ? "linear" : "yarn");
    gguf.SetF32(prefix + ".rope.scaling.factor", static_cast<float>(spec_.rope.factor));
    if (!linear) {
      gguf.SetU32(prefix + ".rope.scaling.original_context_length", spec_.rope.original_context_length);
    }
  }
  const PreTokenizer pre = IsLlamaLike() ? PreTokenizer::kSmolLm : PreTokenizer::kQwen2;
  AddTokenizerToGguf(MakeTinyTokenizer(spec_.tokenizer, pre, spec_.vocab), &gguf);
  if (spec_.rope.scaling == RopeScaling::kLlama3) {
    const std::vector<float> divisors = Llama3Divisors(spec_.rope, spec_.head_dim);
    gguf.AddTensor("rope_freqs.weight", {divisors.size()}, 0, EncodeRow(TensorType::kF32, divisors));
  }
  for (const Weight& weight : weights_) {
    const std::vector<uint64_t> dims =
        weight.vector ? std::vector<uint64_t>{weight.cols} : std::vector<uint64_t>{weight.cols, weight.rows};
    gguf.AddTensor(weight.gguf_name, dims, static_cast<uint32_t>(weight.type), GgufBytes(weight));
  }
  return gguf;
}

void TinyModel::WriteGguf(const std::string& path) const { WriteFileOrDie(path, Gguf().Finish()); }

std::string TinyModel::ConfigJson() const {
  Json config = {{"architectures", Json::array({"TinyForCausalLM"})},
                 {"model_type", ArchitectureName(spec_.architecture)},
                 {"hidden_act", "silu"},
                 {"hidden_size", spec_.hidden},
                 {"intermediate_size", spec_.ffn},
                 {"num_hidden_layers", spec_.layers},
                 {"num_attention_heads", spec_.heads},
                 {"num_key_value_heads", spec_.kv_heads},
                 {"head_dim", spec_.head_dim},
                 {"vocab_size", spec_.vocab},
                 {"max_position_embeddings", spec_.context_length},
                 {"rms_norm_eps", 1e-5},
                 {"rope_theta", spec_.rope.base},
                 {"tie_word_embeddings", spec_.tied},
                 {"torch_dtype", "float32"}};
  Json scaling = nullptr;
  switch (spec_.rope.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      scaling = {{"type", "linear"}, {"factor", spec_.rope.factor}};
      break;
    case RopeScaling::kLlama3:
      scaling = {{"rope_type", "llama3"},
                 {"factor", spec_.rope.factor},
                 {"low_freq_factor", spec_.rope.low_freq_factor},
                 {"high_freq_factor", spec_.rope.high_freq_factor},
                 {"original_max_position_embeddings", spec_.rope.original_context_length}};
      break;
    case RopeScaling::kYarn:
      scaling = {{"rope_type", "yarn"},
                 {"factor", spec_.rope.factor},
                 {"original_max_position_embeddings", spec_.rope.original_context_length}};
      break;
  }
  config["rope_scaling"] = scaling;
  return config.dump(2);
}

std::string TinyModel::SafetensorsBytes(size_t begin, size_t end) const {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (size_t i = begin; i < end; ++i) {
    const Weight& weight = weights_[i];
    const TensorType type = IsPlain(weight.type) ? weight.type : TensorType::kF32;
    const size_t start = data.size();
    data += IsPlain(weight.type) ? weight.encoded : EncodeRow(TensorType::kF32, weight.values);
    Json shape = weight.vector ? Json::array({weight.cols}) : Json::array({weight.rows, weight.cols});
    header[weight.hf_name] = {{"dtype", NameOf(type)},
                              {"shape", std::move(shape)},
                              {"data_offsets", Json::array({start, data.size()})}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out;
  AppendField(&out, text);
  return out + data;
}

void TinyModel::WriteHuggingFace(const std::string& folder, int shards) const {
  std::filesystem::create_directories(folder);
  const PreTokenizer pre = IsLlamaLike() ? PreTokenizer::kSmolLm : PreTokenizer::kQwen2;
  const TokenizerSpec tokenizer = MakeTinyTokenizer(spec_.tokenizer, pre, spec_.vocab);
  WriteFileOrDie(folder + "/config.json", ConfigJson());
  WriteFileOrDie(folder + "/tokenizer.json", TokenizerJsonOf(tokenizer));
  WriteFileOrDie(folder + "/tokenizer_config.json", TokenizerConfigJsonOf(tokenizer));
  const Json generation = {{"eos_token_id", Json::array({*tokenizer.eos, *tokenizer.eot})}};
  WriteFileOrDie(folder + "/generation_config.json", generation.dump());
  if (shards <= 1) {
    WriteFileOrDie(folder + "/model.safetensors", SafetensorsBytes(0, weights_.size()));
    return;
  }
  Json map = Json::object();
  for (int shard = 0; shard < shards; ++shard) {
    const size_t begin = weights_.size() * shard / shards, end = weights_.size() * (shard + 1) / shards;
    const std::string name =
        "model-0000" + std::to_string(shard + 1) + "-of-0000" + std::to_string(shards) + ".safetensors";
    WriteFileOrDie(folder + "/" + name, SafetensorsBytes(begin, end));
    for (size_t i = begin; i < end; ++i) map[weights_[i].hf_name] = name;
  }
  WriteFileOrDie(folder + "/model.safetensors.index.json",
                 Json({{"metadata", Json::object()}, {"weight_map", map}}).dump());
}

void WriteFileOrDie(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  EPIC_CHECK(out.good());
}

}  // namespace epic::testing
