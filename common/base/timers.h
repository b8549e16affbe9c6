// Callbacks at a point of the steady clock: deadlines, waits and periodic checks.
//
// Callbacks run one at a time and must be short: longer work goes to an Executor. Thread-safe. Tests move
// time by hand with common/testing/manual_timers.h.
#ifndef EPIC_COMMON_BASE_TIMERS_H_
#define EPIC_COMMON_BASE_TIMERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace epic {

using TimerId = uint64_t;  // never 0

class Timers {
 public:
  virtual ~Timers() = default;
  // Calls `callback` once, as soon as the clock shows `steady_ns` or later.
  virtual TimerId At(int64_t steady_ns, std::function<void()> callback) = 0;
  // Forgets a timer. A callback that has begun goes on; Cancel does not wait for it. Unknown ids are ignored.
  virtual void Cancel(TimerId id) = 0;
};

class TimerThread final : public Timers {
 public:
  explicit TimerThread(const Clock* clock);
  ~TimerThread() override { Stop(); }
  TimerThread(const TimerThread&) = delete;
  TimerThread& operator=(const TimerThread&) = delete;

  TimerId At(int64_t steady_ns, std::function<void()> callback) override;
  void Cancel(TimerId id) override;
  // Drops what has not fired and waits for the thread. Idempotent. Not from a callback.
  void Stop();

 private:
  void Run();

  const Clock* const clock_;
  Mutex mu_;
  CondVar wake_;
  // By (time, id); ids_ finds the time of an id.
  std::map<std::pair<int64_t, TimerId>, std::function<void()>> due_ ABSL_GUARDED_BY(mu_);
  std::map<TimerId, int64_t> ids_ ABSL_GUARDED_BY(mu_);
  TimerId next_id_ ABSL_GUARDED_BY(mu_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // constructor and the one Stop that joins
};

}  // namespace epic

#endif  // EPIC_COMMON_BASE_TIMERS_H_
