#include "common/base/clock.h"

#include <ctime>

namespace epic {
namespace {
int64_t ReadNs(clockid_t id) {
  timespec now{};
  clock_gettime(id, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}
}  // namespace

int64_t SystemClock::UnixMs() const { return ReadNs(CLOCK_REALTIME) / 1'000'000; }
int64_t SystemClock::SteadyNs() const { return ReadNs(CLOCK_BOOTTIME); }

SystemClock* SystemClock::Get() {
  static SystemClock clock;
  return &clock;
}

}  // namespace epic
