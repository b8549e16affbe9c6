// Summaries of measurements: mean, median, spread, and bootstrap intervals paired by prompt. Pure; the same
// numbers on every machine for a seed.
#ifndef EPIC_LOADGEN_STATISTICS_STATISTICS_H_
#define EPIC_LOADGEN_STATISTICS_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace epic::loadgen {

struct Spread {
  double median = 0, min = 0, max = 0;
};

struct Interval {
  double low = 0, high = 0;
};

struct BootstrapOptions {
  uint32_t resamples = 10'000;
  uint64_t seed = 20'241'015;
  double confidence = 0.95;  // in (0, 1)
};

// REQUIRES: not empty, for all below.
double Mean(std::span<const double> values);
double Median(std::span<const double> values);  // of an even number: the mean of the middle two
Spread SpreadOf(std::span<const double> values);
// q in [0, 1]; linear between the two nearest ranks, as numpy does by default.
double Quantile(std::span<const double> values, double q);

// Percentile bootstrap of the mean: each resample draws values.size() indices with replacement. Two calls
// with values of the same size and the same options draw the same indices: intervals of several series over
// the same prompts are paired.
Interval MeanInterval(std::span<const double> values, const BootstrapOptions& options);

struct Ratio {
  double value = 0;  // Mean(numerator) / Mean(denominator)
  Interval interval;
};
// The ratio of two means over the same prompts, resampled by prompt. nullopt where the denominator's mean, or
// that of a resample, is zero. REQUIRES: the same size.
std::optional<Ratio> MeanRatio(std::span<const double> numerator, std::span<const double> denominator,
                               const BootstrapOptions& options);

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_STATISTICS_STATISTICS_H_
