// Radians per position of each rotated pair, from a model's RopeConfig, and the kernels' pairing.
//
// Pure, any thread; called once when an engine is made. What of a rotary configuration is refused is decided
// when the model is read (services/model); the table itself is kernels/rope.
#ifndef EPIC_SERVICES_ENGINE_ROPE_FREQUENCIES_H_
#define EPIC_SERVICES_ENGINE_ROPE_FREQUENCIES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/rope/rope.h"
#include "services/model/model_config.h"

namespace epic {

// Frequency of pair j: base^(-2j/head_dim), then by scaling:
//   kNone    theta
//   kLinear  theta / factor
//   kLlama3  theta / divisors[j]
//   kYarn    theta blended with theta / factor: pairs that turn more than beta_fast times within the
//            original context keep theta, those that turn less than beta_slow times are interpolated, a
//            linear ramp over j between (YaRN, arXiv 2309.00071, equations 17 to 23 as its public reference
//            computes them).
// Shape: [head_dim/2]. Errors: InvalidArgument when the configuration lacks what its scaling needs.
absl::StatusOr<std::vector<double>> RopeFrequencies(const RopeConfig& config, uint32_t head_dim);

// What cos and sin are multiplied by: YaRN's attention factor, 1 otherwise.
double RopeScale(const RopeConfig& config);

RopePairs PairsOf(RopePairing pairing);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_ROPE_FREQUENCIES_H_
