// How long tests wait for something on another thread: 20 s in all, however often they are woken. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_TESTING_PATIENCE_H_
#define EPIC_COMMON_TRANSPORT_TESTING_PATIENCE_H_

#include <cstdint>

#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace epic::transport {

class Patience {
 public:
  // Waits for a change, or a little; false when it has come to its end.
  bool Wait(Mutex* mu, CondVar* changed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (SystemClock::Get()->SteadyNs() >= end_ns_) return false;
    changed->WaitForMs(mu, kLookMs);
    return true;
  }

 private:
  static constexpr int64_t kLookMs = 100;
  const int64_t end_ns_ = SystemClock::Get()->SteadyNs() + 20'000'000'000;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TESTING_PATIENCE_H_
