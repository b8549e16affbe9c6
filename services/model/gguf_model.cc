#include "services/model/gguf_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/status/status_macros.h"
#include "services/model/model_error.h"

namespace epic {
namespace {

constexpr TensorNames kGgufNames = {
    .embedding = "token_embd.weight",
    .output_norm = "output_norm.weight",
    .head = "output.weight",
    .layer_prefix = "blk.",
    .attention_norm = "attn_norm.weight",
    .q = "attn_q.weight",
    .k = "attn_k.weight",
    .v = "attn_v.weight",
    .q_bias = "attn_q.bias",
    .k_bias = "attn_k.bias",
    .v_bias = "attn_v.bias",
    .q_norm = "attn_q_norm.weight",
    .k_norm = "attn_k_norm.weight",
    .output = "attn_output.weight",
    .ffn_norm = "ffn_norm.weight",
    .gate = "ffn_gate.weight",
    .up = "ffn_up.weight",
    .down = "ffn_down.weight",
};
constexpr std::string_view kRopeFreqs = "rope_freqs.weight";

class Reader {
 public:
  Reader(const GgufFile& gguf, ModelParts* parts) : gguf_(gguf), parts_(*parts), config_(parts->config) {}

  absl::Status Run() {
    EPIC_RETURN_IF_ERROR(ReadArchitecture());
    EPIC_RETURN_IF_ERROR(RefuseOtherFeatures());
    EPIC_RETURN_IF_ERROR(ReadSizes());
    EPIC_RETURN_IF_ERROR(ReadRope());
    EPIC_RETURN_IF_ERROR(ReadRopeScaling());
    EPIC_RETURN_IF_ERROR(ReadTexts());
    for (const GgufTensor& tensor : gguf_.tensors()) {
      if (tensor.name == kRopeFreqs) continue;
      NamedTensor named{tensor.name, tensor.type, {}, tensor.data};
      for (uint32_t d = tensor.n_dims; d > 0; --d) named.dims.push_back(tensor.dims[d - 1]);
      if (tensor.name == kGgufNames.head) config_.tied_head = false;
      if (tensor.name.ends_with(kGgufNames.q_bias)) config_.qkv_bias = true;
      parts_.tensors.push_back(std::move(named));
    }
    return absl::OkStatus();
  }

 private:
  std::string Key(std::string_view suffix) const { return absl::StrCat(prefix_, ".", ToAbsl(suffix)); }
  absl::Status Bad(std::string_view field, std::string_view what) const {
    return BadModelFile(gguf_.file(), field, what);
  }

  absl::Status ReadArchitecture() {
    constexpr std::string_view kKey = "general.architecture";
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> name, gguf_.String(kKey));
    if (!name.has_value()) return Bad(kKey, "is missing");
    prefix_ = *name;
    if (*name == "llama") {
      config_.architecture = Architecture::kLlama;
      config_.rope.pairing = RopePairing::kNorm;
    } else if (*name == "qwen2") {
      config_.architecture = Architecture::kQwen2;
      config_.rope.pairing = RopePairing::kNeox;
      config_.qkv_bias = true;
    } else if (*name == "qwen3") {
      config_.architecture = Architecture::kQwen3;
      config_.rope.pairing = RopePairing::kNeox;
      config_.qk_norm = true;
    } else {
      return Bad(kKey,
                 absl::StrCat("is ", Quoted(*name), "; EPIC runs llama (with mistral), qwen2 and qwen3"));
    }
    return absl::OkStatus();
  }

  // Features that change the computation and that EPIC does not have. Absent or neutral values are fine.
  absl::Status RefuseOtherFeatures() const {
    for (std::string_view suffix : {"expert_count", "rope.dimension_sections"}) {
      const std::string key = Key(suffix);
      if (suffix == "rope.dimension_sections") {
        if (gguf_.Has(key)) return Bad(key, "M-RoPE is not supported");
        continue;
      }
      EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> value, gguf_.UniformUint(key));
      if (value.value_or(0) != 0) return Bad(key, "mixtures of experts are not supported");
    }
    struct Neutral {
      std::string_view suffix;
      double neutral;
      std::string_view what;
    };
    constexpr Neutral kNeutral[] = {
        {"attention.max_alibi_bias", 0.0, "ALiBi is not supported"},
        {"attention.clamp_kqv", 0.0, "clamped projections are not supported"},
        {"attn_logit_softcapping", 0.0, "soft-capped attention is not supported"},
        {"final_logit_softcapping", 0.0, "soft-capped logits are not supported"},
        {"attention.scale", 0.0, "an own attention scale is not supported"},
        {"embedding_scale", 0.0, "scaled embeddings are not supported"},
        {"residual_scale", 0.0, "scaled residuals are not supported"},
        {"logit_scale", 0.0, "scaled logits are not supported"},
        {"rope.scaling.yarn_log_multiplier", 0.0, "YaRN with a log multiplier is not supported"},
    };
    for (const Neutral& each : kNeutral) {
      EPIC_ASSIGN_OR_RETURN(const std::optional<double> value, gguf_.Float(Key(each.suffix)));
      if (value.has_value() && *value != each.neutral) return Bad(Key(each.suffix), each.what);
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> causal, gguf_.Bool(Key("attention.causal")));
    if (!causal.value_or(true)) return Bad(Key("attention.causal"), "EPIC runs causal models only");
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> Size(std::string_view suffix,
                                std::optional<uint32_t> fallback = std::nullopt) const {
    const std::string key = Key(suffix);
    EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> value, gguf_.UniformUint(key));
    if (!value.has_value()) {
      if (fallback.has_value()) return *fallback;
      return Bad(key, "is missing");
    }
    if (*value == 0 || *value > std::numeric_limits<uint32_t>::max()) {
      return Bad(key, absl::StrCat("is ", *value, ", which is out of range"));
    }
    return static_cast<uint32_t>(*value);
  }

  absl::Status ReadSizes() {
    EPIC_ASSIGN_OR_RETURN(config_.layers, Size("block_count"));
    EPIC_ASSIGN_OR_RETURN(config_.hidden, Size("embedding_length"));
    EPIC_ASSIGN_OR_RETURN(config_.ffn, Size("feed_forward_length"));
    EPIC_ASSIGN_OR_RETURN(config_.context_length, Size("context_length"));
    EPIC_ASSIGN_OR_RETURN(config_.heads, Size("attention.head_count"));
    EPIC_ASSIGN_OR_RETURN(config_.kv_heads, Size("attention.head_count_kv", config_.heads));
    const std::string head_dim_key = Key("attention.key_length");
    if (!gguf_.Has(head_dim_key) && config_.hidden % config_.heads != 0) {
      return Bad(head_dim_key, absl::StrCat("is missing, and ", config_.hidden, " does not divide by ",
                                            config_.heads, " heads"));
    }
    EPIC_ASSIGN_OR_RETURN(config_.head_dim, Size("attention.key_length", config_.hidden / config_.heads));
    EPIC_ASSIGN_OR_RETURN(const uint32_t value_length, Size("attention.value_length", config_.head_dim));
    if (value_length != config_.head_dim) {
      return Bad(Key("attention.value_length"), "values of another size than keys are not supported");
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> window,
                          gguf_.UniformUint(Key("attention.sliding_window")));
    // Up to the window's length a sliding window hides nothing.
    if (window.value_or(0) != 0) {
      config_.context_length = static_cast<uint32_t>(std::min<uint64_t>(config_.context_length, *window));
    }
    const std::string epsilon_key = Key("attention.layer_norm_rms_epsilon");
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> epsilon, gguf_.Float(epsilon_key));
    if (!epsilon.has_value()) return Bad(epsilon_key, "is missing");
    config_.rms_epsilon = *epsilon;
    config_.tied_head = true;  // until an output.weight is found
    return absl::OkStatus();
  }

  absl::Status ReadRope() {
    RopeConfig& rope = config_.rope;
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> base, gguf_.Float(Key("rope.freq_base")));
    rope.base = base.value_or(10000.0);
    EPIC_ASSIGN_OR_RETURN(const uint32_t rotated, Size("rope.dimension_count", config_.head_dim));
    if (rotated != config_.head_dim) {
      return Bad(Key("rope.dimension_count"), absl::StrCat("is ", rotated, " of ", config_.head_dim,
                                                           ": partial rotary embedding is not supported"));
    }
    AppendLittle<double>(&parts_.rope_identity, rope.base);
    for (const GgufTensor& tensor : gguf_.tensors()) {
      if (tensor.name.starts_with("rope_factors")) {
        return Bad(absl::StrCat("tensor ", Quoted(tensor.name)), "LongRoPE is not supported");
      }
      if (tensor.name != kRopeFreqs) continue;
      if (tensor.type != TensorType::kF32) return Bad("tensor 'rope_freqs.weight' type", "must be F32");
      rope.scaling = RopeScaling::kLlama3;
      rope.divisors.resize(tensor.data.size() / sizeof(float));
      std::memcpy(rope.divisors.data(), tensor.data.data(), tensor.data.size());
      AppendField(&parts_.rope_identity, "divisors");
      AppendField(&parts_.rope_identity, AsText(tensor.data));
    }
    return absl::OkStatus();
  }

  absl::Status ReadRopeScaling() {
    RopeConfig& rope = config_.rope;
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> type, gguf_.String(Key("rope.scaling.type")));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> factor, gguf_.Float(Key("rope.scaling.factor")));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> old_scale, gguf_.Float(Key("rope.scale_linear")));
    // Older files give a factor alone, which means linear scaling.
    const std::optional<double> stated = factor.has_value() ? factor : old_scale;
    const bool scaled = stated.value_or(1.0) != 1.0 && stated.value_or(1.0) != 0.0;
    const std::string name = type.value_or(scaled ? "linear" : "none");
    if (name == "none") return absl::OkStatus();
    if (name != "linear" && name != "yarn") {
      return Bad(Key("rope.scaling.type"),
                 absl::StrCat("is ", Quoted(name), "; EPIC has none, linear and yarn"));
    }
    if (rope.scaling != RopeScaling::kNone) {
      return Bad(Key("rope.scaling.type"), "cannot be combined with rope_freqs.weight");
    }
    if (!stated.has_value()) return Bad(Key("rope.scaling.factor"), "is missing");
    rope.factor = *stated;
    AppendField(&parts_.rope_identity, name);
    AppendLittle<double>(&parts_.rope_identity, rope.factor);
    rope.scaling = name == "linear" ? RopeScaling::kLinear : RopeScaling::kYarn;
    return name == "linear" ? absl::OkStatus() : ReadYarn();
  }

  absl::Status ReadYarn() {
    RopeConfig& rope = config_.rope;
    EPIC_ASSIGN_OR_RETURN(rope.original_context_length, Size("rope.scaling.original_context_length"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> attention,
                          gguf_.Float(Key("rope.scaling.attn_factor")));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> yarn_attention,
                          gguf_.Float(Key("rope.scaling.yarn_attn_factor")));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> extrapolation,
                          gguf_.Float(Key("rope.scaling.yarn_ext_factor")));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> fast, gguf_.Float(Key("rope.scaling.yarn_beta_fast")));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> slow, gguf_.Float(Key("rope.scaling.yarn_beta_slow")));
    if (extrapolation.value_or(1.0) != 1.0) {
      return Bad(Key("rope.scaling.yarn_ext_factor"),
                 "YaRN with another extrapolation than 1 is not supported");
    }
    const double multiplier = attention.value_or(1.0) * yarn_attention.value_or(1.0);
    rope.beta_fast = fast.value_or(32.0);
    rope.beta_slow = slow.value_or(1.0);
    // The file's factor multiplies the temperature of the YaRN paper, 0.1 ln(factor) + 1.
    rope.attention_factor = multiplier * (rope.factor > 1.0 ? 0.1 * std::log(rope.factor) + 1.0 : 1.0);
    for (double value : {multiplier, rope.beta_fast, rope.beta_slow}) {
      AppendLittle<double>(&parts_.rope_identity, value);
    }
    AppendLittle<uint32_t>(&parts_.rope_identity, rope.original_context_length);
    return absl::OkStatus();
  }

  absl::Status ReadTexts() {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> name, gguf_.String("general.name"));
    config_.name = name.value_or("");
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> text, gguf_.String("tokenizer.chat_template"));
    parts_.chat_template = text.value_or("");
    EPIC_ASSIGN_OR_RETURN(parts_.tokenizer, ReadGgufTokenizer(gguf_));
    config_.vocab = static_cast<uint32_t>(
        std::min<size_t>(parts_.tokenizer.tokens.size(), std::numeric_limits<uint32_t>::max()));
    EPIC_ASSIGN_OR_RETURN(const uint32_t stated, Size("vocab_size", config_.vocab));
    if (stated != config_.vocab) {
      return Bad(Key("vocab_size"),
                 absl::StrCat("is ", stated, " and tokenizer.ggml.tokens has ", config_.vocab));
    }
    return absl::OkStatus();
  }

  const GgufFile& gguf_;
  ModelParts& parts_;
  ModelConfig& config_;
  std::string prefix_;
};

}  // namespace

absl::StatusOr<ModelParts> ReadGgufModel(std::shared_ptr<const ModelFile> file) {
  EPIC_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Parse(file->path(), file->bytes()));
  ModelParts parts;
  parts.path = file->path();
  parts.names = kGgufNames;
  parts.files.push_back(std::move(file));
  EPIC_RETURN_IF_ERROR(Reader(gguf, &parts).Run());
  return parts;
}

}  // namespace epic
