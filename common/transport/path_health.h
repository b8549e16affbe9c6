// Whether a path is worth trying: a path that failed cools down, longer each time it fails again, is probed
// and comes back. Pure, of one thread; who probes is path_chooser.h.
#ifndef EPIC_COMMON_TRANSPORT_PATH_HEALTH_H_
#define EPIC_COMMON_TRANSPORT_PATH_HEALTH_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/base/random.h"

namespace epic::transport {

struct CooldownOptions {
  int64_t min_ms = 200;     // after the first failure, less up to half of it by chance
  int64_t max_ms = 30'000;  // it doubles up to this. REQUIRES: 0 < min_ms <= max_ms
};

class PathHealth {
 public:
  explicit PathHealth(const CooldownOptions& options) : options_(options) {}

  bool up() const { return !cooling_; }

  // A transfer failed. When to probe, on the clock of `now_ns`; nullopt while it is cooling anyway.
  std::optional<int64_t> Failed(int64_t now_ns, Rng* rng) {
    if (cooling_) return std::nullopt;
    cooling_ = true;
    return Next(now_ns, rng);
  }
  // When to probe again.
  int64_t ProbeFailed(int64_t now_ns, Rng* rng) { return Next(now_ns, rng); }
  // It is up, but a path that answers probes and brings nothing cools down longer each time.
  void ProbeSucceeded() { cooling_ = false; }
  // It brought something.
  void Succeeded() {
    cooling_ = false;
    failures_ = 0;
  }

 private:
  int64_t Next(int64_t now_ns, Rng* rng) {
    int64_t ms = options_.min_ms;
    for (int i = 0; i < failures_ && ms < options_.max_ms; ++i) ms *= 2;
    ms = std::min(ms, options_.max_ms);
    ++failures_;
    const int64_t us = ms * 1000;
    return now_ns + 1000 * (us / 2 + static_cast<int64_t>(rng->Below(static_cast<uint64_t>(us / 2 + 1))));
  }

  const CooldownOptions options_;
  bool cooling_ = false;
  int failures_ = 0;  // in a row
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_PATH_HEALTH_H_
