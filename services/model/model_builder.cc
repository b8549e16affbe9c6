#include "services/model/model_builder.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/base/check.h"
#include "common/status/status_macros.h"
#include "services/model/model_error.h"
#include "services/model/model_identity.h"
#include "services/model/utf8.h"

namespace epic {
namespace {

// Sizes past these are mistakes or attacks; each is an order of magnitude above what models have.
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxHidden = 1u << 20;
constexpr uint32_t kMaxHeads = 1u << 14;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxFfn = 1u << 24;
constexpr uint32_t kMaxVocab = 1u << 24;
constexpr uint32_t kMaxContextLength = 1u << 24;

struct ModelData {
  ModelConfig config;
  TokenizerSpec tokenizer;
  std::string chat_template;
  Tensor embedding, output_norm, head;
  std::vector<LayerTensors> layers;
  Digest identity;
  uint64_t parameter_count = 0;
  uint64_t file_bytes = 0;
  std::vector<std::shared_ptr<const ModelFile>> files;
};

class LoadedModel final : public Model {
 public:
  explicit LoadedModel(ModelData data) : data_(std::move(data)) {}
  const ModelConfig& config() const override { return data_.config; }
  const TokenizerSpec& tokenizer_spec() const override { return data_.tokenizer; }
  const std::string& chat_template_source() const override { return data_.chat_template; }
  const Tensor& embedding() const override { return data_.embedding; }
  const Tensor& output_norm() const override { return data_.output_norm; }
  const Tensor& head() const override { return data_.config.tied_head ? data_.embedding : data_.head; }
  const LayerTensors& layer(uint32_t layer) const override {
    EPIC_CHECK(layer < data_.layers.size());
    return data_.layers[layer];
  }
  const Digest& identity() const override { return data_.identity; }
  uint64_t parameter_count() const override { return data_.parameter_count; }
  uint64_t file_bytes() const override { return data_.file_bytes; }

 private:
  const ModelData data_;
};

class Builder {
 public:
  explicit Builder(ModelParts parts) : parts_(std::move(parts)) {}

  absl::StatusOr<std::shared_ptr<const Model>> Build() {
    EPIC_RETURN_IF_ERROR(CheckSizes());
    EPIC_RETURN_IF_ERROR(CheckRope());
    EPIC_RETURN_IF_ERROR(CheckTokenizer());
    if (FindInvalidUtf8(parts_.chat_template)) return Bad("chat template", "is not UTF-8");
    // A name is only shown; a folder may have any.
    if (FindInvalidUtf8(parts_.config.name)) parts_.config.name.clear();
    for (const NamedTensor& tensor : parts_.tensors) {
      if (!by_name_.emplace(tensor.name, &tensor).second) {
        return Bad(absl::StrCat("tensor ", Quoted(tensor.name)), "stands in the files twice");
      }
    }
    EPIC_RETURN_IF_ERROR(TakeModelTensors());
    data_.layers.resize(config().layers);
    for (uint32_t i = 0; i < config().layers; ++i) EPIC_RETURN_IF_ERROR(TakeLayer(i));
    EPIC_RETURN_IF_ERROR(RefuseTheRest());
    return Finish();
  }

 private:
  const ModelConfig& config() const { return parts_.config; }
  absl::Status Bad(std::string_view field, std::string_view what) const {
    return BadModelFile(parts_.path, field, what);
  }

  absl::Status CheckRange(std::string_view field, uint32_t value, uint32_t max) const {
    if (value >= 1 && value <= max) return absl::OkStatus();
    return Bad(field, absl::StrCat("is ", value, "; it must be 1 to ", max));
  }

  absl::Status CheckSizes() const {
    const ModelConfig& c = config();
    EPIC_RETURN_IF_ERROR(CheckRange("layers (block_count)", c.layers, kMaxLayers));
    EPIC_RETURN_IF_ERROR(CheckRange("hidden size (embedding_length)", c.hidden, kMaxHidden));
    EPIC_RETURN_IF_ERROR(CheckRange("heads (attention.head_count)", c.heads, kMaxHeads));
    EPIC_RETURN_IF_ERROR(CheckRange("KV heads (attention.head_count_kv)", c.kv_heads, kMaxHeads));
    EPIC_RETURN_IF_ERROR(CheckRange("head size (attention.key_length)", c.head_dim, kMaxHeadDim));
    EPIC_RETURN_IF_ERROR(CheckRange("MLP size (feed_forward_length)", c.ffn, kMaxFfn));
    EPIC_RETURN_IF_ERROR(CheckRange("vocabulary (tokens)", c.vocab, kMaxVocab));
    EPIC_RETURN_IF_ERROR(CheckRange("context length", c.context_length, kMaxContextLength));
    if (c.heads % c.kv_heads != 0) {
      return Bad("KV heads (attention.head_count_kv)",
                 absl::StrCat(c.heads, " heads cannot share ", c.kv_heads, " KV heads evenly"));
    }
    if (c.head_dim % 2 != 0) return Bad("head size (attention.key_length)", "must be even");
    if (!(c.rms_epsilon >= 0.0 && c.rms_epsilon < 1.0)) {
      return Bad("RMS epsilon (attention.layer_norm_rms_epsilon)",
                 absl::StrCat("is ", c.rms_epsilon, "; it must be in [0, 1)"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPositive(std::string_view field, double value, double max) const {
    if (value > 0.0 && value <= max) return absl::OkStatus();
    return Bad(field, absl::StrCat("is ", value, "; it must be above 0 and at most ", max));
  }

  absl::Status CheckRope() const {
    const RopeConfig& rope = config().rope;
    EPIC_RETURN_IF_ERROR(CheckPositive("rotary base (rope.freq_base)", rope.base, 1e15));
    // From 1 down, later pairs would turn as fast as the first or faster.
    if (rope.base <= 1.0) return Bad("rotary base (rope.freq_base)", "must be above 1");
    if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn) {
      EPIC_RETURN_IF_ERROR(CheckPositive("rotary scaling factor", rope.factor, 1e6));
    }
    if (rope.scaling == RopeScaling::kLlama3) {
      if (rope.divisors.size() != config().head_dim / 2) {
        return Bad("rotary divisors (rope_freqs.weight)",
                   absl::StrCat("has ", rope.divisors.size(), " values for ", config().head_dim / 2,
                                " frequencies"));
      }
      for (float divisor : rope.divisors) {
        EPIC_RETURN_IF_ERROR(CheckPositive("rotary divisors (rope_freqs.weight)", divisor, 1e6));
      }
    }
    if (rope.scaling == RopeScaling::kYarn) {
      EPIC_RETURN_IF_ERROR(CheckPositive("YaRN attention factor", rope.attention_factor, 1e3));
      EPIC_RETURN_IF_ERROR(CheckPositive("YaRN beta_fast", rope.beta_fast, 1e6));
      EPIC_RETURN_IF_ERROR(CheckPositive("YaRN beta_slow", rope.beta_slow, 1e6));
      EPIC_RETURN_IF_ERROR(
          CheckRange("YaRN original context length", rope.original_context_length, kMaxContextLength));
    }
    return absl::OkStatus();
  }

  absl::Status CheckTokenizer() const {
    const TokenizerSpec& spec = parts_.tokenizer;
    const size_t vocab = config().vocab;
    if (spec.tokens.size() != vocab) {
      return Bad("tokenizer tokens",
                 absl::StrCat("has ", spec.tokens.size(), " tokens for a vocabulary of ", vocab));
    }
    if (spec.types.size() != vocab) {
      return Bad("tokenizer token types",
                 absl::StrCat("has ", spec.types.size(), " entries for ", vocab, " tokens"));
    }
    const size_t scores = spec.kind == TokenizerKind::kSpm ? vocab : 0;
    if (spec.scores.size() != scores) {
      return Bad("tokenizer scores",
                 absl::StrCat("has ", spec.scores.size(), " entries for ", scores, " tokens"));
    }
    const std::pair<std::string_view, std::optional<uint32_t>> ids[] = {{"bos", spec.bos},
                                                                        {"eos", spec.eos},
                                                                        {"eot", spec.eot},
                                                                        {"unknown", spec.unknown},
                                                                        {"padding", spec.padding}};
    for (const auto& [name, id] : ids) {
      if (id.has_value() && *id >= vocab) {
        return Bad(absl::StrCat(ToAbsl(name), " token id"), absl::StrCat(*id, " is outside the vocabulary"));
      }
    }
    for (uint32_t id : spec.end_of_generation) {
      if (id >= vocab) return Bad("eos_token_id", absl::StrCat(id, " is outside the vocabulary"));
    }
    return absl::OkStatus();
  }

  // Gives `name` the role `out` if the file has it, and checks its shape.
  absl::Status TakeOptional(const std::string& name, uint64_t rows, uint64_t cols, Tensor* out) {
    const auto it = by_name_.find(name);
    if (it == by_name_.end()) return absl::OkStatus();
    const NamedTensor& tensor = *it->second;
    // Leading dimensions of 1 say nothing.
    std::span<const uint64_t> dims = tensor.dims;
    while (dims.size() > 1 && dims.front() == 1) dims = dims.subspan(1);
    const bool fits = !dims.empty() && dims.back() == cols &&
                      (dims.size() == 2 ? dims.front() == rows : dims.size() == 1 && rows == 1);
    if (!fits) {
      std::string has;
      for (uint64_t dim : tensor.dims) absl::StrAppend(&has, has.empty() ? "" : " x ", dim);
      return Bad(absl::StrCat("tensor ", Quoted(name)),
                 absl::StrCat("has the shape ", has.empty() ? "of a scalar" : has,
                              " where the model's sizes give ", rows, " x ", cols));
    }
    *out = Tensor{name, tensor.type, rows, cols, tensor.data};
    const BlockShape block = BlockShapeOf(tensor.type);
    EPIC_CHECK(out->data.size() == rows * (cols / block.values) * block.bytes);
    by_name_.erase(it);
    taken_.push_back(*out);
    return absl::OkStatus();
  }

  absl::Status Take(const std::string& name, uint64_t rows, uint64_t cols, Tensor* out) {
    EPIC_RETURN_IF_ERROR(TakeOptional(name, rows, cols, out));
    if (out->present()) return absl::OkStatus();
    return Bad(absl::StrCat("tensor ", Quoted(name)), "is missing");
  }

  absl::Status TakeModelTensors() {
    const ModelConfig& c = config();
    const TensorNames& names = parts_.names;
    EPIC_RETURN_IF_ERROR(Take(std::string(names.embedding), c.vocab, c.hidden, &data_.embedding));
    EPIC_RETURN_IF_ERROR(Take(std::string(names.output_norm), 1, c.hidden, &data_.output_norm));
    if (!c.tied_head) EPIC_RETURN_IF_ERROR(Take(std::string(names.head), c.vocab, c.hidden, &data_.head));
    return absl::OkStatus();
  }

  absl::Status TakeLayer(uint32_t index) {
    const ModelConfig& c = config();
    const TensorNames& names = parts_.names;
    const uint64_t q_rows = uint64_t{c.heads} * c.head_dim;
    const uint64_t kv_rows = uint64_t{c.kv_heads} * c.head_dim;
    LayerTensors& layer = data_.layers[index];
    const auto name = [&](std::string_view suffix) {
      return absl::StrCat(ToAbsl(names.layer_prefix), index, ".", ToAbsl(suffix));
    };
    EPIC_RETURN_IF_ERROR(Take(name(names.attention_norm), 1, c.hidden, &layer.attention_norm));
    EPIC_RETURN_IF_ERROR(Take(name(names.q), q_rows, c.hidden, &layer.q));
    EPIC_RETURN_IF_ERROR(Take(name(names.k), kv_rows, c.hidden, &layer.k));
    EPIC_RETURN_IF_ERROR(Take(name(names.v), kv_rows, c.hidden, &layer.v));
    if (c.qkv_bias) {
      EPIC_RETURN_IF_ERROR(Take(name(names.q_bias), 1, q_rows, &layer.q_bias));
      EPIC_RETURN_IF_ERROR(Take(name(names.k_bias), 1, kv_rows, &layer.k_bias));
      EPIC_RETURN_IF_ERROR(Take(name(names.v_bias), 1, kv_rows, &layer.v_bias));
    }
    if (c.qk_norm) {
      EPIC_RETURN_IF_ERROR(Take(name(names.q_norm), 1, c.head_dim, &layer.q_norm));
      EPIC_RETURN_IF_ERROR(Take(name(names.k_norm), 1, c.head_dim, &layer.k_norm));
    }
    EPIC_RETURN_IF_ERROR(Take(name(names.output), c.hidden, q_rows, &layer.output));
    EPIC_RETURN_IF_ERROR(Take(name(names.ffn_norm), 1, c.hidden, &layer.ffn_norm));
    EPIC_RETURN_IF_ERROR(Take(name(names.gate), c.ffn, c.hidden, &layer.gate));
    EPIC_RETURN_IF_ERROR(Take(name(names.up), c.ffn, c.hidden, &layer.up));
    return Take(name(names.down), c.hidden, c.ffn, &layer.down);
  }

  bool IsIgnorable(std::string_view name) const {
    for (std::string_view ignorable : parts_.ignorable) {
      if (name.ends_with(ignorable)) return true;
    }
    return parts_.config.tied_head && name == parts_.names.head;
  }

  absl::Status RefuseTheRest() const {
    std::string_view worst;  // the first in byte order, so that the message does not depend on hashing
    for (const auto& [name, tensor] : by_name_) {
      if (!IsIgnorable(name) && (worst.empty() || name < worst)) worst = name;
    }
    if (worst.empty()) return absl::OkStatus();
    return Bad(absl::StrCat("tensor ", Quoted(worst)),
               "has no place in this architecture; EPIC would compute another model without it");
  }

  absl::StatusOr<std::shared_ptr<const Model>> Finish() {
    std::vector<const Tensor*> tensors;
    tensors.reserve(taken_.size());
    for (const Tensor& tensor : taken_) {
      tensors.push_back(&tensor);
      data_.parameter_count += tensor.rows * tensor.cols;
    }
    for (const auto& file : parts_.files) data_.file_bytes += file->bytes().size();
    data_.identity = ModelIdentityOf(parts_.config, parts_.rope_identity, parts_.tokenizer, tensors);
    data_.config = std::move(parts_.config);
    data_.tokenizer = std::move(parts_.tokenizer);
    data_.chat_template = std::move(parts_.chat_template);
    data_.files = std::move(parts_.files);
    return std::shared_ptr<const Model>(std::make_shared<LoadedModel>(std::move(data_)));
  }

  ModelParts parts_;
  ModelData data_;
  absl::flat_hash_map<std::string_view, const NamedTensor*> by_name_;  // those without a role so far
  std::vector<Tensor> taken_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Model>> BuildModel(ModelParts parts) {
  return Builder(std::move(parts)).Build();
}

}  // namespace epic
