// A rate measured over and over (bytes or rows per second), as an estimate that outliers hardly move and that
// goes back to what is thought of such workers in general when nothing is measured any more. One thread at a
// time.
//
// In logarithms: the mean moves by kGain of each deviation, which counts at most kClip times the mean
// deviation. So one measurement that is a thousand times off moves the estimate by a few per cent, and a true
// change is followed within some tens of measurements. The weight of what was measured halves every
// kHalfLifeNs. The prior has the weight of one measurement, or of more where measurements differ more than
// workers of one kind do (kBelieved): noise should not decide between workers.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_RATE_ESTIMATE_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_RATE_ESTIMATE_H_

#include <cstdint>

namespace epic::router {

class RateEstimate {
 public:
  static constexpr double kGain = 0.1;
  static constexpr double kClip = 3.0;
  static constexpr double kMaxWeight = 20.0;
  static constexpr double kBelieved = 0.2;
  static constexpr int64_t kHalfLifeNs = 60'000'000'000;

  // `prior` > 0, per second: what to expect before anything is measured.
  explicit RateEstimate(double prior);

  // Not finite or not positive: ignored. Times may go back a little.
  void Add(double rate, int64_t now_ns);
  // A better guess for such workers. Ignored unless finite and positive.
  void SetPrior(double prior);

  double Value(int64_t now_ns) const;
  uint64_t samples() const { return samples_; }

 private:
  double WeightAt(int64_t now_ns) const;

  double log_prior_;
  double log_mean_ = 0;
  double deviation_ = 0.3;
  double weight_ = 0;
  int64_t last_ns_ = 0;
  uint64_t samples_ = 0;
};

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_RATE_ESTIMATE_H_
