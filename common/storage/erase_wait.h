// Somebody who waits for an erasure (KvStore::EraseContext): until its end, until a point in time, or until
// nobody waits for the answer any more. The erasure itself goes on. Shared by the store, which tells of its
// end, and a timer. Thread-safe; made for each wait.
#ifndef EPIC_COMMON_STORAGE_ERASE_WAIT_H_
#define EPIC_COMMON_STORAGE_ERASE_WAIT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/cancel.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/storage/kv_store.h"

namespace epic {

class EraseWait : public std::enable_shared_from_this<EraseWait> {
 public:
  // Both outlive what waits; the timers go by the clock.
  static std::shared_ptr<EraseWait> Make(Timers* timers, const Clock* clock) {
    return std::shared_ptr<EraseWait>(new EraseWait(timers, clock));
  }

  // For the store.
  ErasedDone Receiver();
  // Once, after the store has taken the erasure. Calls `done` once: with what the store said at the end; with
  // kLocalNode at `until_ns`, or within a second after `cancel` says so.
  void Await(int64_t until_ns, CancelToken cancel, ErasedDone done) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  EraseWait(Timers* timers, const Clock* clock) : timers_(timers), clock_(clock) {}
  void Receive(std::vector<std::string> pending) ABSL_LOCKS_EXCLUDED(mu_);
  void Look(int64_t until_ns, const CancelToken& cancel) ABSL_LOCKS_EXCLUDED(mu_);

  Timers* const timers_;
  const Clock* const clock_;

  Mutex mu_;
  std::optional<std::vector<std::string>> pending_ ABSL_GUARDED_BY(mu_);  // set: the store has told
  ErasedDone done_ ABSL_GUARDED_BY(mu_);                                  // not yet called
};

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_ERASE_WAIT_H_
