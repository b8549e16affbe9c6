#include "services/model/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/absl_std.h"
#include "common/base/bytes.h"
#include "common/status/status_macros.h"
#include "services/model/json_file.h"
#include "services/model/model_error.h"

namespace epic {
namespace {

// 0.1 m ln(factor) + 1: the temperature of the YaRN paper.
double YarnScale(double factor, double m) { return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; }

class Reader {
 public:
  Reader(const JsonObject& root, HfConfig* out) : root_(root), out_(*out), config_(out->config) {}

  absl::Status Run() {
    EPIC_RETURN_IF_ERROR(ReadArchitecture());
    EPIC_RETURN_IF_ERROR(RefuseOtherFeatures());
    EPIC_RETURN_IF_ERROR(ReadSizes());
    EPIC_RETURN_IF_ERROR(ReadRope());
    return ReadSlidingWindow();
  }

 private:
  absl::Status ReadArchitecture() {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> type, root_.String("model_type"));
    if (!type.has_value()) return root_.Bad("model_type", "is missing");
    if (*type == "llama") {
      config_.architecture = Architecture::kLlama;
    } else if (*type == "mistral") {
      config_.architecture = Architecture::kMistral;
    } else if (*type == "qwen2") {
      config_.architecture = Architecture::kQwen2;
      config_.qkv_bias = true;
    } else if (*type == "qwen3") {
      config_.architecture = Architecture::kQwen3;
      config_.qk_norm = true;
    } else {
      return root_.Bad("model_type",
                       absl::StrCat("is ", Quoted(*type), "; EPIC runs llama, mistral, qwen2 and qwen3"));
    }
    config_.rope.pairing = RopePairing::kNeox;
    return absl::OkStatus();
  }

  absl::Status RefuseOtherFeatures() const {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> activation, root_.String("hidden_act"));
    if (activation.value_or("silu") != "silu") {
      return root_.Bad("hidden_act", absl::StrCat("is ", Quoted(*activation), "; EPIC has silu"));
    }
    for (std::string_view key : {"num_local_experts", "num_experts"}) {
      EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> experts, root_.Uint(key));
      if (experts.value_or(0) != 0) return root_.Bad(key, "mixtures of experts are not supported");
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> rotated, root_.Number("partial_rotary_factor"));
    if (rotated.value_or(1.0) != 1.0) {
      return root_.Bad("partial_rotary_factor", "partial rotary embedding is not supported");
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> mlp_bias, root_.Bool("mlp_bias"));
    if (mlp_bias.value_or(false)) return root_.Bad("mlp_bias", "an MLP with biases is not supported");
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> alibi, root_.Bool("alibi"));
    if (alibi.value_or(false)) return root_.Bad("alibi", "ALiBi is not supported");
    if (root_.Has("quantization_config")) {
      return root_.Bad("quantization_config",
                       "is not supported; use a GGUF file or F32, F16 or BF16 weights");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint32_t> Size(const JsonObject& object, std::string_view key,
                                std::optional<uint32_t> fallback = std::nullopt) const {
    EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> value, object.Uint(key));
    if (!value.has_value()) {
      if (fallback.has_value()) return *fallback;
      return object.Bad(key, "is missing");
    }
    if (*value == 0 || *value > std::numeric_limits<uint32_t>::max()) {
      return object.Bad(key, absl::StrCat("is ", *value, ", which is out of range"));
    }
    return static_cast<uint32_t>(*value);
  }

  absl::Status ReadSizes() {
    EPIC_ASSIGN_OR_RETURN(config_.layers, Size(root_, "num_hidden_layers"));
    EPIC_ASSIGN_OR_RETURN(config_.hidden, Size(root_, "hidden_size"));
    EPIC_ASSIGN_OR_RETURN(config_.ffn, Size(root_, "intermediate_size"));
    EPIC_ASSIGN_OR_RETURN(config_.vocab, Size(root_, "vocab_size"));
    EPIC_ASSIGN_OR_RETURN(config_.context_length, Size(root_, "max_position_embeddings"));
    EPIC_ASSIGN_OR_RETURN(config_.heads, Size(root_, "num_attention_heads"));
    EPIC_ASSIGN_OR_RETURN(config_.kv_heads, Size(root_, "num_key_value_heads", config_.heads));
    const bool qwen3 = config_.architecture == Architecture::kQwen3;
    if (!root_.Has("head_dim") && !qwen3 && config_.hidden % config_.heads != 0) {
      return root_.Bad("head_dim", absl::StrCat("is missing, and ", config_.hidden, " does not divide by ",
                                                config_.heads, " heads"));
    }
    EPIC_ASSIGN_OR_RETURN(config_.head_dim,
                          Size(root_, "head_dim", qwen3 ? 128 : config_.hidden / config_.heads));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> epsilon, root_.Number("rms_norm_eps"));
    config_.rms_epsilon = epsilon.value_or(1e-6);
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> tied, root_.Bool("tie_word_embeddings"));
    config_.tied_head = tied.value_or(false);
    return absl::OkStatus();
  }

  // Older files have rope_theta and rope_scaling, newer ones both in rope_parameters.
  absl::Status ReadRope() {
    RopeConfig& rope = config_.rope;
    EPIC_ASSIGN_OR_RETURN(const std::optional<JsonObject> parameters, root_.Object("rope_parameters"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<JsonObject> scaling, root_.Object("rope_scaling"));
    EPIC_ASSIGN_OR_RETURN(std::optional<double> base, root_.Number("rope_theta"));
    if (parameters.has_value()) {
      EPIC_ASSIGN_OR_RETURN(const std::optional<double> inner, parameters->Number("rope_theta"));
      if (inner.has_value()) base = inner;
    }
    rope.base = base.value_or(10000.0);
    if (!(rope.base > 0.0)) return root_.Bad("rope_theta", "must be above 0");
    AppendLittle<double>(&out_.rope_identity, rope.base);
    if (parameters.has_value() && scaling.has_value()) {
      return root_.Bad("rope_scaling", "stands beside rope_parameters; keep one of them");
    }
    if (parameters.has_value()) return ReadScaling(*parameters);
    return scaling.has_value() ? ReadScaling(*scaling) : absl::OkStatus();
  }

  absl::Status ReadScaling(const JsonObject& scaling) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> new_name, scaling.String("rope_type"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> old_name, scaling.String("type"));
    const std::string type = new_name.value_or(old_name.value_or(""));
    if (scaling.Has("mrope_section")) return scaling.Bad("mrope_section", "M-RoPE is not supported");
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> rotated, scaling.Number("partial_rotary_factor"));
    if (rotated.value_or(1.0) != 1.0) {
      return scaling.Bad("partial_rotary_factor", "partial rotary embedding is not supported");
    }
    if (type == "default") return absl::OkStatus();
    if (type != "linear" && type != "llama3" && type != "yarn") {
      return scaling.Bad("rope_type",
                         absl::StrCat("is ", Quoted(type), "; EPIC has default, linear, llama3 and yarn"));
    }
    AppendField(&out_.rope_identity, type);
    EPIC_ASSIGN_OR_RETURN(config_.rope.factor, Positive(scaling, "factor"));
    AppendLittle<double>(&out_.rope_identity, config_.rope.factor);
    if (type == "llama3") return ReadLlama3(scaling);
    if (type == "yarn") return ReadYarn(scaling);
    config_.rope.scaling = RopeScaling::kLinear;
    return absl::OkStatus();
  }

  absl::StatusOr<double> Positive(const JsonObject& object, std::string_view key,
                                  std::optional<double> fallback = std::nullopt) const {
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> value, object.Number(key));
    if (!value.has_value()) {
      if (fallback.has_value()) return *fallback;
      return object.Bad(key, "is missing");
    }
    if (!(*value > 0.0)) return object.Bad(key, "must be above 0");
    return *value;
  }

  absl::Status ReadLlama3(const JsonObject& scaling) {
    EPIC_ASSIGN_OR_RETURN(const double low, Positive(scaling, "low_freq_factor"));
    EPIC_ASSIGN_OR_RETURN(const double high, Positive(scaling, "high_freq_factor"));
    EPIC_ASSIGN_OR_RETURN(const uint32_t original, Size(scaling, "original_max_position_embeddings"));
    if (!(high > low)) return scaling.Bad("high_freq_factor", "must be above low_freq_factor");
    for (double value : {low, high, static_cast<double>(original)}) {
      AppendLittle<double>(&out_.rope_identity, value);
    }
    // A head size that is out of range is refused later; the table must not be made for it.
    if (config_.head_dim > 4096) return root_.Bad("head_dim", "is out of range");
    config_.rope.scaling = RopeScaling::kLlama3;
    config_.rope.divisors =
        Llama3Divisors(config_.rope.base, config_.head_dim, config_.rope.factor, low, high, original);
    return absl::OkStatus();
  }

  absl::Status ReadYarn(const JsonObject& scaling) {
    RopeConfig& rope = config_.rope;
    rope.scaling = RopeScaling::kYarn;
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> truncate, scaling.Bool("truncate"));
    if (!truncate.value_or(true)) return scaling.Bad("truncate", "YaRN without truncation is not supported");
    EPIC_ASSIGN_OR_RETURN(rope.original_context_length,
                          Size(scaling, "original_max_position_embeddings", config_.context_length));
    EPIC_ASSIGN_OR_RETURN(rope.beta_fast, Positive(scaling, "beta_fast", 32.0));
    EPIC_ASSIGN_OR_RETURN(rope.beta_slow, Positive(scaling, "beta_slow", 1.0));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> attention, scaling.Number("attention_factor"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> scale, scaling.Number("mscale"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<double> scale_all, scaling.Number("mscale_all_dim"));
    if (attention.has_value()) {
      rope.attention_factor = *attention;
    } else if (scale.value_or(0.0) != 0.0 && scale_all.value_or(0.0) != 0.0) {
      rope.attention_factor = YarnScale(rope.factor, *scale) / YarnScale(rope.factor, *scale_all);
    } else {
      rope.attention_factor = YarnScale(rope.factor, 1.0);
    }
    for (double value : {static_cast<double>(rope.original_context_length), rope.beta_fast, rope.beta_slow,
                         attention.value_or(0.0), scale.value_or(0.0), scale_all.value_or(0.0)}) {
      AppendLittle<double>(&out_.rope_identity, value);
    }
    // Files that add YaRN by hand keep the original length in max_position_embeddings.
    if (config_.context_length <= rope.original_context_length) {
      const double length = std::min(rope.original_context_length * rope.factor, 4294967295.0);
      config_.context_length = static_cast<uint32_t>(length);
    }
    return absl::OkStatus();
  }

  // Up to the window's length a sliding window hides nothing: the context is limited to it.
  absl::Status ReadSlidingWindow() {
    EPIC_ASSIGN_OR_RETURN(const std::optional<bool> used, root_.Bool("use_sliding_window"));
    EPIC_ASSIGN_OR_RETURN(const std::optional<uint64_t> window, root_.Uint("sliding_window"));
    bool sliding_layer = false;
    const nlohmann::json& layer_types = root_.Get("layer_types");
    if (!layer_types.is_null() && !layer_types.is_array())
      return root_.Bad("layer_types", "must be an array");
    for (const nlohmann::json& type : layer_types) {
      if (type == "sliding_attention") {
        sliding_layer = true;
      } else if (type != "full_attention") {
        return root_.Bad("layer_types", "EPIC has full_attention and, within its window, sliding_attention");
      }
    }
    if (sliding_layer && window.value_or(0) == 0) return root_.Bad("sliding_window", "is missing");
    const bool qwen =
        config_.architecture == Architecture::kQwen2 || config_.architecture == Architecture::kQwen3;
    if (window.value_or(0) != 0 && (sliding_layer || used.value_or(!qwen))) {
      config_.context_length = static_cast<uint32_t>(std::min<uint64_t>(config_.context_length, *window));
    }
    return absl::OkStatus();
  }

  const JsonObject& root_;
  HfConfig& out_;
  ModelConfig& config_;
};

}  // namespace

std::vector<float> Llama3Divisors(double base, uint32_t head_dim, double factor, double low_freq_factor,
                                  double high_freq_factor, double original_context_length) {
  const double low_wavelength = original_context_length / low_freq_factor;
  const double high_wavelength = original_context_length / high_freq_factor;
  std::vector<float> divisors;
  divisors.reserve(head_dim / 2);
  for (uint32_t j = 0; j < head_dim / 2; ++j) {
    const double frequency = std::pow(base, -2.0 * j / head_dim);
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    double divisor = 1.0;
    if (wavelength > low_wavelength) {
      divisor = factor;
    } else if (wavelength >= high_wavelength) {
      const double smooth =
          (original_context_length / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor);
      divisor = 1.0 / ((1.0 - smooth) / factor + smooth);
    }
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

absl::StatusOr<HfConfig> ReadHfConfig(std::string_view file, const nlohmann::json& json) {
  HfConfig out;
  const JsonObject root(file, "", json);
  EPIC_RETURN_IF_ERROR(Reader(root, &out).Run());
  return out;
}

}  // namespace epic
