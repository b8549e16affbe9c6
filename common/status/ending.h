// Something that ends once, with a status, on another thread: the thread that began it waits here.
// Thread-safe. Holds no timer: bound a wait by cancelling what is waited for.
#ifndef EPIC_COMMON_STATUS_ENDING_H_
#define EPIC_COMMON_STATUS_ENDING_H_

#include <cstdint>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/cancel.h"
#include "common/base/check.h"
#include "common/base/mutex.h"

namespace epic {

class Ending {
 public:
  // REQUIRES: not set before.
  void Set(absl::Status status) {
    MutexLock lock(&mu_);
    EPIC_CHECK(!done_);
    status_ = std::move(status);
    done_ = true;
    changed_.SignalAll();
  }
  // What was set; blocks until it is. May be called again.
  absl::Status Wait() {
    MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
    return status_;
  }
  // True when it has ended; false when `cancel` was seen first (within 25 ms).
  bool WaitUnless(const CancelToken& cancel) {
    MutexLock lock(&mu_);
    while (!done_ && !cancel.cancelled()) changed_.WaitForMs(&mu_, kCancelLookMs);
    return done_;
  }

 private:
  static constexpr int64_t kCancelLookMs = 25;

  Mutex mu_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_COMMON_STATUS_ENDING_H_
