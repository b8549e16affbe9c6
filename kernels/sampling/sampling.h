// From logits to a token: penalties, bias, filters, a seeded draw, and log-probabilities.
//
// Pure functions over one row of f32 logits; sums are in double in order of the id, so the same logits give
// the same token everywhere. Logits of minus infinity mean "never". Who owns the row must refuse NaN and plus
// infinity first (AllFiniteOrMinusInfinity).
#ifndef EPIC_KERNELS_SAMPLING_SAMPLING_H_
#define EPIC_KERNELS_SAMPLING_SAMPLING_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/base/random.h"

namespace epic {

// False when a logit is NaN or plus infinity, or when no logit is above minus infinity.
bool AllFiniteOrMinusInfinity(std::span<const float> logits);

// The highest logit; the lowest id among equals. REQUIRES: logits is not empty.
uint32_t ArgMax(std::span<const float> logits);

// How often a token has occurred.
struct TokenCount {
  uint32_t id = 0;
  uint32_t in_output = 0;  // among the generated tokens
  uint32_t in_prompt = 0;
};

struct Penalties {
  float presence = 0;    // subtracted once from a token that is in the output
  float frequency = 0;   // subtracted as often as the token is in the output
  float repetition = 1;  // divides positive and multiplies negative logits of tokens in prompt or output
};

// Repetition first, then frequency and presence. REQUIRES: every id < logits.size(); each id at most once.
void ApplyPenalties(const Penalties& penalties, std::span<const TokenCount> counts, std::span<float> logits);

struct LogitBias {
  uint32_t id = 0;
  float bias = 0;  // added; minus infinity bans the token
};
// REQUIRES: every id < logits.size().
void ApplyBias(std::span<const LogitBias> biases, std::span<float> logits);

// log of the sum of exp(logits), in double.
double LogSumExp(std::span<const float> logits);

// out[i] = logits[i] - LogSumExp(logits). `out` may be the same memory. REQUIRES: equal sizes.
void LogSoftmax(std::span<const float> logits, std::span<float> out);

struct TokenLogProb {
  uint32_t id = 0;
  double log_prob = 0;
};
// The `count` most probable tokens, best first, the lowest id first among equals.
std::vector<TokenLogProb> TopLogProbs(std::span<const float> logits, size_t count);

struct FilterParams {
  float temperature = 1;  // 0 = greedy
  uint32_t top_k = 0;     // 0 = off
  float top_p = 1;        // 1 = off
  float min_p = 0;        // 0 = off; relative to the most probable token
};

struct Candidate {
  uint32_t id = 0;
  double probability = 0;  // after temperature and filters; all candidates sum to 1
};

// Temperature, then top_k, then top_p (the smallest set that reaches it, at least one), then min_p. Most
// probable first, the lowest id first among equals. Never empty.
// REQUIRES: temperature >= 0, top_p in (0, 1], min_p in [0, 1].
std::vector<Candidate> FilterCandidates(std::span<const float> logits, const FilterParams& params);

// The candidate in whose share of [0, 1) `uniform` lies. REQUIRES: candidates is not empty.
uint32_t Draw(std::span<const Candidate> candidates, double uniform);

// What FilterCandidates and Draw give, up to rounding of the shares, without sorting the vocabulary; takes
// one number from `rng`, none when greedy.
uint32_t SampleToken(std::span<const float> logits, const FilterParams& params, Rng* rng);

}  // namespace epic

#endif  // EPIC_KERNELS_SAMPLING_SAMPLING_H_
