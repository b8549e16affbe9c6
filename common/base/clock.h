// Time as a constructor argument. SystemClock is the real one; ManualClock moves only when a test says so.
// Both may be used from any thread.
#ifndef EPIC_COMMON_BASE_CLOCK_H_
#define EPIC_COMMON_BASE_CLOCK_H_

#include <atomic>
#include <cstdint>

namespace epic {

class Clock {
 public:
  virtual ~Clock() = default;
  // Milliseconds since the Unix epoch. May jump; for stamps that users see and for expiry.
  virtual int64_t UnixMs() const = 0;
  // Nanoseconds on CLOCK_BOOTTIME. Never jumps; for intervals and deadlines inside one process.
  virtual int64_t SteadyNs() const = 0;
};

class SystemClock final : public Clock {
 public:
  int64_t UnixMs() const override;
  int64_t SteadyNs() const override;
  // The process-wide instance; stateless.
  static SystemClock* Get();
};

class ManualClock final : public Clock {
 public:
  explicit ManualClock(int64_t unix_ms = 1'700'000'000'000) : unix_ms_(unix_ms) {}
  int64_t UnixMs() const override { return unix_ms_.load(); }
  int64_t SteadyNs() const override { return steady_ns_.load(); }
  void AdvanceMs(int64_t ms) {
    unix_ms_ += ms;
    steady_ns_ += ms * 1'000'000;
  }

 private:
  std::atomic<int64_t> unix_ms_;
  std::atomic<int64_t> steady_ns_{1'000'000'000};
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_CLOCK_H_
