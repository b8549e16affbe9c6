// Draws one choice's tokens: penalties over what it has said, bias, filters, a seeded draw,
// log-probabilities.
//
// One per choice; engine thread only. The same parameters, prompt and logits give the same tokens everywhere.
#ifndef EPIC_SERVICES_ENGINE_SAMPLER_H_
#define EPIC_SERVICES_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/base/random.h"
#include "kernels/sampling/sampling.h"
#include "services/engine/engine.h"

namespace epic {

class Sampler {
 public:
  // Choice i draws from seed + i. `params` must have passed ValidateSampling.
  Sampler(const SamplingParams& params, uint32_t choice, std::span<const TokenId> prompt);

  // The next token, with log-probabilities of the model's own distribution where they were asked for.
  // REQUIRES: logits are finite. `scratch` is memory that samplers share.
  GeneratedToken Next(std::span<const float> logits, std::vector<float>* scratch);

 private:
  void Count(TokenId token, bool in_prompt);

  const SamplingParams params_;
  const uint32_t choice_;
  const bool counts_tokens_;
  std::vector<LogitBias> biases_;
  Rng rng_;
  std::vector<TokenCount> counts_;
  std::unordered_map<TokenId, size_t> index_;  // into counts_
};

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_SAMPLER_H_
