#include "loadgen/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/base/check.h"
#include "common/base/random.h"

namespace epic::loadgen {
namespace {

double SortedQuantile(std::span<const double> sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(rank));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Interval IntervalOf(std::vector<double> statistics, double confidence) {
  EPIC_CHECK(confidence > 0 && confidence < 1);
  std::sort(statistics.begin(), statistics.end());
  const double tail = (1 - confidence) / 2;
  return {SortedQuantile(statistics, tail), SortedQuantile(statistics, 1 - tail)};
}

// Calls visit(resample, index) for every draw.
template <typename Visit>
void Resample(size_t count, const BootstrapOptions& options, const Visit& visit) {
  EPIC_CHECK(options.resamples > 0);
  Rng rng(options.seed);
  for (uint32_t resample = 0; resample < options.resamples; ++resample) {
    for (size_t i = 0; i < count; ++i) visit(resample, rng.Below(count));
  }
}

}  // namespace

double Mean(std::span<const double> values) {
  EPIC_CHECK(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Quantile(std::span<const double> values, double q) {
  EPIC_CHECK(!values.empty() && q >= 0 && q <= 1);
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return SortedQuantile(sorted, q);
}

double Median(std::span<const double> values) { return Quantile(values, 0.5); }

Spread SpreadOf(std::span<const double> values) {
  EPIC_CHECK(!values.empty());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {Median(values), *low, *high};
}

Interval MeanInterval(std::span<const double> values, const BootstrapOptions& options) {
  EPIC_CHECK(!values.empty());
  std::vector<double> means(options.resamples, 0.0);
  Resample(values.size(), options,
           [&](uint32_t resample, uint64_t index) { means[resample] += values[index]; });
  for (double& mean : means) mean /= static_cast<double>(values.size());
  return IntervalOf(std::move(means), options.confidence);
}

std::optional<Ratio> MeanRatio(std::span<const double> numerator, std::span<const double> denominator,
                               const BootstrapOptions& options) {
  EPIC_CHECK(!numerator.empty() && numerator.size() == denominator.size());
  const double below = Mean(denominator);
  if (below == 0) return std::nullopt;
  std::vector<double> tops(options.resamples, 0.0), bottoms(options.resamples, 0.0);
  Resample(numerator.size(), options, [&](uint32_t resample, uint64_t index) {
    tops[resample] += numerator[index];
    bottoms[resample] += denominator[index];
  });
  for (uint32_t resample = 0; resample < options.resamples; ++resample) {
    if (bottoms[resample] == 0) return std::nullopt;
    tops[resample] /= bottoms[resample];
  }
  return Ratio{Mean(numerator) / below, IntervalOf(std::move(tops), options.confidence)};
}

}  // namespace epic::loadgen
