// How far two rows of logits, or two runs over the same tokens, are from each other: what every report of
// quality is made of. Pure functions, any thread; sums in double. Means over prompts and intervals are the
// reports' (loadgen/quality).
#ifndef EPIC_SERVICES_ENGINE_LOGITS_DIFFERENCE_H_
#define EPIC_SERVICES_ENGINE_LOGITS_DIFFERENCE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace epic {

// KL(p || q) of the softmaxes of two rows of logits, in nats. Shape: [vocab] both. REQUIRES: same size, not
// empty, all finite.
double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits);

// Row by row over the same tokens.
struct LogitsDifference {
  std::vector<double> kl;       // KL(full || linked) of each row, nats
  uint32_t same_likeliest = 0;  // rows whose likeliest token is the same

  double KlMean() const;
  double KlMedian() const;
  double Top1() const;  // share of rows whose likeliest token is the same
};

// One row of logits per token, in order. REQUIRES: the same number of rows, at least one.
LogitsDifference CompareRuns(const std::vector<std::vector<float>>& full,
                             const std::vector<std::vector<float>>& linked);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_LOGITS_DIFFERENCE_H_
