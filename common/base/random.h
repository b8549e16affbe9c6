// A small seeded generator (SplitMix64) with the same sequence on every machine: tests and sampling replay by
// seed. One thread at a time. Not for secrets.
#ifndef EPIC_COMMON_BASE_RANDOM_H_
#define EPIC_COMMON_BASE_RANDOM_H_

#include <cmath>
#include <cstdint>
#include <numbers>

#include "common/base/check.h"

namespace epic {

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound). REQUIRES: bound > 0. The bias is below bound / 2^64.
  uint64_t Below(uint64_t bound) {
    EPIC_CHECK(bound > 0);
    return Next() % bound;
  }
  // Uniform in [0, 1) with 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // Standard normal by Box and Muller.
  double Gaussian() {
    const double u = 1.0 - Uniform();
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * Uniform());
  }

 private:
  uint64_t state_;
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_RANDOM_H_
