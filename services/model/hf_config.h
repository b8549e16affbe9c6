// What config.json of a Hugging Face folder means: model types llama, mistral, qwen2 and qwen3, their sizes
// and rotary parameters. No state.
#ifndef EPIC_SERVICES_MODEL_HF_CONFIG_H_
#define EPIC_SERVICES_MODEL_HF_CONFIG_H_

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "services/model/model_config.h"

namespace epic {

struct HfConfig {
  ModelConfig config;
  std::string rope_identity;  // see ModelParts
};

// `qkv_bias` of a llama or mistral is left false: the reader sets it from the tensors. Errors:
// InvalidArgument that names the file and the field.
absl::StatusOr<HfConfig> ReadHfConfig(std::string_view file, const nlohmann::json& json);

// Llama 3's scaling as divisors of the frequencies. Source: the rotary initialisation of the reference
// implementation (transformers, rope_type llama3). Shape: [head_dim / 2].
std::vector<float> Llama3Divisors(double base, uint32_t head_dim, double factor, double low_freq_factor,
                                  double high_freq_factor, double original_context_length);

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_HF_CONFIG_H_
