#include "services/engine/sampler.h"

#include <algorithm>

namespace epic {
namespace {

bool HasPenalties(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 || params.repetition_penalty != 1;
}

void AddLogprobs(std::span<const float> logits, uint32_t top, GeneratedToken* out) {
  const double normalizer = LogSumExp(logits);
  out->logprob = static_cast<float>(logits[out->token] - normalizer);
  for (const TokenLogProb& entry : TopLogProbs(logits, top)) {
    out->top_logprobs.push_back({entry.id, static_cast<float>(entry.log_prob)});
  }
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, uint32_t choice, std::span<const TokenId> prompt)
    : params_(params), choice_(choice), counts_tokens_(HasPenalties(params)), rng_(params.seed + choice) {
  for (const auto& [id, bias] : params.logit_bias) biases_.push_back({id, bias});
  if (params.repetition_penalty == 1) return;
  for (const TokenId token : prompt) Count(token, true);
}

void Sampler::Count(TokenId token, bool in_prompt) {
  const auto [entry, fresh] = index_.try_emplace(token, counts_.size());
  if (fresh) counts_.push_back({.id = token});
  TokenCount& count = counts_[entry->second];
  ++(in_prompt ? count.in_prompt : count.in_output);
}

GeneratedToken Sampler::Next(std::span<const float> logits, std::vector<float>* scratch) {
  std::span<const float> shaped = logits;
  if (!biases_.empty() || !counts_.empty()) {
    scratch->assign(logits.begin(), logits.end());
    ApplyPenalties({.presence = params_.presence_penalty,
                    .frequency = params_.frequency_penalty,
                    .repetition = params_.repetition_penalty},
                   counts_, *scratch);
    ApplyBias(biases_, *scratch);
    shaped = *scratch;
  }
  GeneratedToken out;
  out.choice = choice_;
  out.token = SampleToken(shaped,
                          {.temperature = params_.temperature,
                           .top_k = static_cast<uint32_t>(std::max(params_.top_k, 0)),
                           .top_p = params_.top_p,
                           .min_p = params_.min_p},
                          &rng_);
  if (params_.logprobs) AddLogprobs(logits, params_.top_logprobs, &out);
  if (counts_tokens_) Count(out.token, false);
  return out;
}

}  // namespace epic
