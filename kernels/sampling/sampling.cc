#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/check.h"

namespace epic {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Ids of the `count` highest logits, best first, the lowest id first among equals.
std::vector<uint32_t> BestIds(std::span<const float> logits, size_t count) {
  std::vector<uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0u);
  count = std::min(count, ids.size());
  const auto better = [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (count < ids.size()) std::nth_element(ids.begin(), ids.begin() + count, ids.end(), better);
  ids.resize(count);
  std::sort(ids.begin(), ids.end(), better);
  return ids;
}

// Scales the probabilities so that they sum to 1.
void Normalise(std::vector<Candidate>* candidates) {
  double total = 0;
  for (const Candidate& candidate : *candidates) total += candidate.probability;
  for (Candidate& candidate : *candidates) candidate.probability /= total;
}

}  // namespace

bool AllFiniteOrMinusInfinity(std::span<const float> logits) {
  bool any = false;
  for (const float logit : logits) {
    if (!(logit < kInfinity)) return false;
    any |= logit > -kInfinity;
  }
  return any;
}

uint32_t ArgMax(std::span<const float> logits) {
  EPIC_CHECK(!logits.empty());
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void ApplyPenalties(const Penalties& penalties, std::span<const TokenCount> counts, std::span<float> logits) {
  for (const TokenCount& count : counts) {
    EPIC_CHECK(count.id < logits.size());
    float& logit = logits[count.id];
    if (count.in_output + count.in_prompt > 0) {
      logit = logit > 0 ? logit / penalties.repetition : logit * penalties.repetition;
    }
    if (count.in_output > 0) {
      logit -= penalties.frequency * static_cast<float>(count.in_output) + penalties.presence;
    }
  }
}

void ApplyBias(std::span<const LogitBias> biases, std::span<float> logits) {
  for (const LogitBias& bias : biases) {
    EPIC_CHECK(bias.id < logits.size());
    logits[bias.id] += bias.bias;
  }
}

double LogSumExp(std::span<const float> logits) {
  EPIC_CHECK(!logits.empty());
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum);
}

void LogSoftmax(std::span<const float> logits, std::span<float> out) {
  EPIC_CHECK(logits.size() == out.size());
  const double total = LogSumExp(logits);
  for (size_t i = 0; i < logits.size(); ++i) out[i] = static_cast<float>(logits[i] - total);
}

std::vector<TokenLogProb> TopLogProbs(std::span<const float> logits, size_t count) {
  const double total = LogSumExp(logits);
  std::vector<TokenLogProb> top;
  for (const uint32_t id : BestIds(logits, count)) top.push_back({id, logits[id] - total});
  return top;
}

std::vector<Candidate> FilterCandidates(std::span<const float> logits, const FilterParams& params) {
  EPIC_CHECK(params.temperature >= 0 && params.top_p > 0 && params.min_p <= 1);
  if (params.temperature == 0) return {{ArgMax(logits), 1.0}};
  const size_t limit = params.top_k == 0 ? logits.size() : params.top_k;
  const double highest = logits[ArgMax(logits)];
  std::vector<Candidate> candidates;
  for (const uint32_t id : BestIds(logits, limit)) {
    candidates.push_back({id, std::exp((logits[id] - highest) / params.temperature)});
  }
  Normalise(&candidates);
  if (params.top_p < 1) {
    double reached = 0;
    size_t kept = 0;
    while (kept < candidates.size() && reached < params.top_p) reached += candidates[kept++].probability;
    candidates.resize(kept);
  }
  const double floor = candidates.front().probability * params.min_p;
  while (candidates.back().probability < floor) candidates.pop_back();
  Normalise(&candidates);
  return candidates;
}

uint32_t Draw(std::span<const Candidate> candidates, double uniform) {
  EPIC_CHECK(!candidates.empty());
  double reached = 0;
  for (const Candidate& candidate : candidates) {
    reached += candidate.probability;
    if (uniform < reached) return candidate.id;
  }
  // Rounding left the sum just below 1: the last candidate with any share.
  size_t last = candidates.size() - 1;
  while (last > 0 && candidates[last].probability == 0) --last;
  return candidates[last].id;
}

uint32_t SampleToken(std::span<const float> logits, const FilterParams& params, Rng* rng) {
  if (params.temperature == 0) return ArgMax(logits);
  return Draw(FilterCandidates(logits, params), rng->Uniform());
}

}  // namespace epic
