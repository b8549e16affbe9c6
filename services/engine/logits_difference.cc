#include "services/engine/logits_difference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"

namespace epic {
namespace {

double LogSumExp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

size_t Likeliest(const std::vector<float>& row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace

double KlDivergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  EPIC_CHECK(!p_logits.empty() && p_logits.size() == q_logits.size());
  const double p_norm = LogSumExp(p_logits);
  const double q_norm = LogSumExp(q_logits);
  double kl = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = p_logits[i] - p_norm;
    kl += std::exp(log_p) * (log_p - (q_logits[i] - q_norm));
  }
  return std::max(kl, 0.0);  // rounding may leave a tiny negative
}

double LogitsDifference::KlMean() const {
  return std::accumulate(kl.begin(), kl.end(), 0.0) / static_cast<double>(kl.size());
}

double LogitsDifference::KlMedian() const {
  std::vector<double> sorted = kl;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double LogitsDifference::Top1() const {
  return static_cast<double>(same_likeliest) / static_cast<double>(kl.size());
}

LogitsDifference CompareRuns(const std::vector<std::vector<float>>& full,
                             const std::vector<std::vector<float>>& linked) {
  EPIC_CHECK(!full.empty() && full.size() == linked.size());
  LogitsDifference difference;
  for (size_t row = 0; row < full.size(); ++row) {
    difference.kl.push_back(KlDivergence(full[row], linked[row]));
    difference.same_likeliest += Likeliest(full[row]) == Likeliest(linked[row]) ? 1 : 0;
  }
  return difference;
}

}  // namespace epic
