#include "services/router/placement/rate_estimate.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"

namespace epic::router {
namespace {

// How far the first measurement, and the estimate ever, may be from the prior.
constexpr double kFirstRange = 1.4;   // a factor of 4
constexpr double kWholeRange = 4.16;  // a factor of 64
constexpr double kLeastClip = 0.05;

}  // namespace

RateEstimate::RateEstimate(double prior) : log_prior_(std::log(prior)) {
  EPIC_CHECK(prior > 0 && std::isfinite(prior));
}

double RateEstimate::WeightAt(int64_t now_ns) const {
  const double passed = static_cast<double>(std::max<int64_t>(0, now_ns - last_ns_));
  return weight_ * std::exp2(-passed / static_cast<double>(kHalfLifeNs));
}

void RateEstimate::SetPrior(double prior) {
  if (prior > 0 && std::isfinite(prior)) log_prior_ = std::log(prior);
}

void RateEstimate::Add(double rate, int64_t now_ns) {
  if (!(rate > 0) || !std::isfinite(rate)) return;
  const double log_rate = std::log(rate);
  if (samples_ == 0) {
    log_mean_ = log_prior_ + std::clamp(log_rate - log_prior_, -kFirstRange, kFirstRange);
  } else {
    // The first measurements count for more, as in a plain mean of them.
    const double gain = std::max(kGain, 1.0 / static_cast<double>(samples_ + 1));
    const double clip = std::max(kClip * deviation_, kLeastClip);
    const double error = log_rate - log_mean_;
    log_mean_ += gain * std::clamp(error, -clip, clip);
    deviation_ += kGain * (std::min(std::abs(error), 2 * clip) - deviation_);
  }
  weight_ = std::min(kMaxWeight, WeightAt(now_ns) + 1);
  last_ns_ = std::max(last_ns_, now_ns);
  ++samples_;
}

double RateEstimate::Value(int64_t now_ns) const {
  if (samples_ == 0) return std::exp(log_prior_);
  const double weight = WeightAt(now_ns);
  const double mean = std::clamp(log_mean_, log_prior_ - kWholeRange, log_prior_ + kWholeRange);
  const double noise = deviation_ / kBelieved;
  const double prior_weight = std::max(1.0, noise * noise);
  return std::exp((weight * mean + prior_weight * log_prior_) / (weight + prior_weight));
}

}  // namespace epic::router
