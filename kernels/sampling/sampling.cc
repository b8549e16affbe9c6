#include "kernels/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "common/base/check.h"
#include "kernels/sampling/sum_exp.h"

namespace epic {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr size_t kBlock = 64;  // logits that share a maximum

// Ids that hold the `count` highest logits, and more. Every block has its maximum: at least `count` logits
// are as high as the count-th highest of those, so only blocks that reach it are looked into. REQUIRES: count
// blocks at least.
std::vector<uint32_t> IdsAround(std::span<const float> logits, size_t count) {
  const size_t blocks = (logits.size() + kBlock - 1) / kBlock;
  std::vector<float> highest(blocks);
  for (size_t b = 0; b < blocks; ++b) {
    const size_t end = std::min(logits.size(), (b + 1) * kBlock);
    float best = logits[b * kBlock];
    for (size_t i = b * kBlock + 1; i < end; ++i) best = std::max(best, logits[i]);
    highest[b] = best;
  }
  std::vector<float> sorted = highest;
  const auto last = sorted.begin() + static_cast<ptrdiff_t>(count - 1);
  std::nth_element(sorted.begin(), last, sorted.end(), std::greater<>());
  const float enough = *last;
  std::vector<uint32_t> ids;
  for (size_t b = 0; b < blocks; ++b) {
    if (highest[b] < enough) continue;
    const size_t end = std::min(logits.size(), (b + 1) * kBlock);
    for (size_t i = b * kBlock; i < end; ++i) {
      if (logits[i] >= enough) ids.push_back(static_cast<uint32_t>(i));
    }
  }
  return ids;
}

// Ids of the `count` highest logits, best first, the lowest id first among equals.
std::vector<uint32_t> BestIds(std::span<const float> logits, size_t count) {
  count = std::min(count, logits.size());
  std::vector<uint32_t> ids;
  if (count > 0 && count <= logits.size() / kBlock / 2) {
    ids = IdsAround(logits, count);
  } else {
    ids.resize(logits.size());
    std::iota(ids.begin(), ids.end(), 0u);
  }
  const auto better = [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  const auto end = ids.begin() + static_cast<ptrdiff_t>(count);
  if (count < ids.size()) std::nth_element(ids.begin(), end, ids.end(), better);
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
  const float highest = *std::max_element(logits.begin(), logits.end());
  return double{highest} + std::log(internal::SumOfExp(logits, highest, 1));
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

namespace {

// The best tokens of a row, as far as a draw has looked: what FilterCandidates would keep, without sorting a
// vocabulary of which nearly every draw needs the head only.
class Head {
 public:
  Head(std::span<const float> logits, const FilterParams& params)
      : logits_(logits),
        params_(params),
        limit_(params.top_k == 0 ? logits.size() : std::min<size_t>(params.top_k, logits.size())),
        highest_(logits[ArgMax(logits)]) {
    if (params.top_k == 0 && (params.top_p < 1 || params.min_p == 0)) {
      total_ = internal::SumOfExp(logits, highest_, params.temperature);
    }
  }

  // Looks at the best `count` tokens. Nullopt when more have to be seen for this draw.
  std::optional<uint32_t> Draw(size_t count, double uniform) {
    const std::vector<uint32_t> ids = BestIds(logits_, std::min(count, limit_));
    const bool all = ids.size() == limit_;
    std::vector<double> weights;
    for (const uint32_t id : ids) {
      weights.push_back(std::exp((double{logits_[id]} - double{highest_}) / params_.temperature));
    }
    if (params_.top_k != 0) {
      if (!all) return std::nullopt;
      total_ = std::accumulate(weights.begin(), weights.end(), 0.0);
    }
    const std::optional<size_t> kept = Kept(weights, all);
    if (!kept.has_value() && (params_.top_p < 1 || params_.min_p > 0)) return std::nullopt;
    const auto end = weights.begin() + static_cast<ptrdiff_t>(kept.value_or(weights.size()));
    const double mass = kept.has_value() ? std::accumulate(weights.begin(), end, 0.0) : total_;
    double reached = 0;
    for (size_t i = 0; i < static_cast<size_t>(end - weights.begin()); ++i) {
      reached += weights[i];
      if (uniform * mass < reached) return ids[i];
    }
    if (!kept.has_value()) return std::nullopt;
    // Rounding left the sum just below the mass: the last token with any share.
    size_t last = *kept - 1;
    while (last > 0 && weights[last] == 0) --last;
    return ids[last];
  }

  size_t limit() const { return limit_; }

 private:
  // How many of the tokens the filters keep; nullopt when that is not decided by those seen.
  std::optional<size_t> Kept(const std::vector<double>& weights, bool all) const {
    size_t kept = weights.size();
    bool cut = all;
    if (params_.top_p < 1) {
      double reached = 0;
      size_t i = 0;
      while (i < kept && reached < params_.top_p * total_) reached += weights[i++];
      cut |= reached >= params_.top_p * total_;
      kept = i;
    }
    if (params_.min_p > 0) {
      const double floor = weights.front() * params_.min_p;
      const size_t before = kept;
      while (weights[kept - 1] < floor) --kept;
      cut |= kept < before;
    }
    if (!cut) return std::nullopt;
    return kept;
  }

  const std::span<const float> logits_;
  const FilterParams& params_;
  const size_t limit_;  // tokens that top_k leaves
  const float highest_;
  double total_ = 0;  // of the weights of those
};

}  // namespace

uint32_t SampleToken(std::span<const float> logits, const FilterParams& params, Rng* rng) {
  EPIC_CHECK(params.temperature >= 0 && params.top_p > 0 && params.min_p <= 1);
  if (params.temperature == 0) return ArgMax(logits);
  const double uniform = rng->Uniform();
  Head head(logits, params);
  for (size_t count = params.top_k == 0 ? 64 : params.top_k; count < head.limit(); count *= 8) {
    if (const std::optional<uint32_t> token = head.Draw(count, uniform)) return *token;
  }
  return *head.Draw(head.limit(), uniform);
}

}  // namespace epic
