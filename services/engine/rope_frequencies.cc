#include "services/engine/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace epic {
namespace {

// The (fractional) pair that turns `turns` times within the original context.
double PairOfTurns(const RopeConfig& config, uint32_t head_dim, double turns) {
  return head_dim * std::log(config.original_context_length / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.base));
}

void BlendYarn(const RopeConfig& config, uint32_t head_dim, std::vector<double>* theta) {
  const double low = std::max(std::floor(PairOfTurns(config, head_dim, config.beta_fast)), 0.0);
  double high = std::min(std::ceil(PairOfTurns(config, head_dim, config.beta_slow)), head_dim - 1.0);
  if (high == low) high += 0.001;
  for (size_t j = 0; j < theta->size(); ++j) {
    const double interpolated = std::clamp((static_cast<double>(j) - low) / (high - low), 0.0, 1.0);
    (*theta)[j] = (*theta)[j] / config.factor * interpolated + (*theta)[j] * (1.0 - interpolated);
  }
}

}  // namespace

absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeConfig& config, uint32_t head_dim) {
  if (head_dim == 0 || head_dim % 2 != 0) {
    return absl::InvalidArgumentError("rotary embedding needs an even head size");
  }
  if (!(config.base > 1.0) || !(config.factor > 0.0)) {
    return absl::InvalidArgumentError("rotary base must be above 1 and its factor above 0");
  }
  std::vector<double> theta(head_dim / 2);
  for (size_t j = 0; j < theta.size(); ++j) {
    theta[j] = std::pow(config.base, -2.0 * static_cast<double>(j) / head_dim);
  }
  switch (config.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& t : theta) t /= config.factor;
      break;
    case RopeScaling::kLlama3:
      if (config.divisors.size() != theta.size()) {
        return absl::InvalidArgumentError("Llama-3 frequency scaling needs one divisor for each pair");
      }
      for (size_t j = 0; j < theta.size(); ++j) theta[j] /= config.divisors[j];
      break;
    case RopeScaling::kYarn:
      if (config.original_context_length == 0) {
        return absl::InvalidArgumentError("YaRN scaling needs the original context length");
      }
      BlendYarn(config, head_dim, &theta);
      break;
  }
  return theta;
}

double RopeScale(const RopeConfig& config) {
  return config.scaling == RopeScaling::kYarn ? config.attention_factor : 1.0;
}

RopePairs PairsOf(RopePairing pairing) {
  return pairing == RopePairing::kNorm ? RopePairs::kNorm : RopePairs::kNeox;
}

}  // namespace epic
