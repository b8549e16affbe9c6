// What a model is made of, read from a GGUF header or a config.json. Plain values; validated when they are
// made.
#ifndef EPIC_SERVICES_MODEL_MODEL_CONFIG_H_
#define EPIC_SERVICES_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace epic {

enum class Architecture : uint8_t { kLlama, kMistral, kQwen2, kQwen3 };

// Which two elements of a head a rotation pairs: kNorm (2j, 2j+1), kNeox (j, j + head_dim/2).
enum class RopePairing : uint8_t { kNorm, kNeox };
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

// Frequencies: theta_j = base^(-2j/head_dim), then by scaling: kLinear theta/factor; kLlama3
// theta/divisors[j]; kYarn as the reference blends, with cos and sin multiplied by attention_factor.
struct RopeConfig {
  RopePairing pairing = RopePairing::kNorm;
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  std::vector<float> divisors;  // [head_dim/2], kLlama3 only
  // kYarn only.
  double attention_factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  uint32_t original_context_length = 0;
};

struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::string name;       // general.name or the folder's name
  uint32_t layers = 0;    // L
  uint32_t hidden = 0;    // width of the residual stream
  uint32_t heads = 0;     // H, query heads
  uint32_t kv_heads = 0;  // G; H % G == 0
  uint32_t head_dim = 0;  // D, even; not always hidden / heads
  uint32_t ffn = 0;       // width of the MLP
  uint32_t vocab = 0;
  uint32_t context_length = 0;  // largest N; with a sliding window at most the window
  double rms_epsilon = 1e-5;
  bool qkv_bias = false;   // qwen2
  bool qk_norm = false;    // qwen3
  bool tied_head = false;  // the head is the embedding
  RopeConfig rope;
};

}  // namespace epic

#endif  // EPIC_SERVICES_MODEL_MODEL_CONFIG_H_
