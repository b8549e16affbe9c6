// A sweep runs a GPU kernel over sizes around its tile boundaries and compares it with the op's reference.
// The same sweeps run under the emulator (as tests, once per seed of thread order) and on a device
// (kernels/device_check), so they know no test framework: they report here.
//
// One thread. Random inputs come from the sweep's own constant seeds: the same on every machine.
#ifndef EPIC_KERNELS_SIMT_SWEEP_H_
#define EPIC_KERNELS_SIMT_SWEEP_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/gpu.h"

namespace epic::simt {

class SweepReport {
 public:
  // `thorough`: every size, as on a device; otherwise those at the boundaries.
  explicit SweepReport(bool thorough) : thorough_(thorough) {}
  bool thorough() const { return thorough_; }
  uint64_t checks() const { return checks_; }
  uint64_t failures() const { return failures_; }
  // The first few failures, one line each.
  const std::vector<std::string>& messages() const { return messages_; }

  bool Expect(bool ok, const std::string& what) {
    ++checks_;
    if (ok) return true;
    ++failures_;
    if (messages_.size() < kKept) messages_.push_back(what);
    return false;
  }
  bool ExpectOk(GpuStatus status, const std::string& what) {
    return Expect(status.ok(), status.ok() ? what : what + ": " + status.message);
  }
  // |got - expected| <= bound(i) for each i; NaN equals NaN only.
  template <typename Bound>
  bool ExpectNear(std::span<const float> got, std::span<const float> expected, const Bound& bound,
                  const std::string& what) {
    if (!Expect(got.size() == expected.size(), what + ": sizes differ")) return false;
    for (size_t i = 0; i < got.size(); ++i) {
      const bool equal = std::isnan(expected[i])
                             ? std::isnan(got[i])
                             : got[i] == expected[i] || std::abs(double{got[i]} - expected[i]) <= bound(i);
      if (!equal) {
        return Expect(false, what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) +
                                 ", not " + std::to_string(expected[i]));
      }
    }
    return Expect(true, what);
  }
  template <typename T>
  bool ExpectSameBytes(std::span<const T> a, std::span<const T> b, const std::string& what) {
    if (!Expect(a.size() == b.size(), what + ": sizes differ")) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) {
        return Expect(false, what + ": element " + std::to_string(i) + " has other bytes");
      }
    }
    return Expect(true, what);
  }

 private:
  static constexpr size_t kKept = 8;
  const bool thorough_;
  uint64_t checks_ = 0;
  uint64_t failures_ = 0;
  std::vector<std::string> messages_;
};

inline std::vector<float> RandomFloats(size_t count, Rng* rng, double scale = 1) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(scale * rng->Gaussian());
  return values;
}

}  // namespace epic::simt

#endif  // EPIC_KERNELS_SIMT_SWEEP_H_
