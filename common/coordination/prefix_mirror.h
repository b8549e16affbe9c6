// All keys under a prefix of the coordination store, listed and then watched for as long as it lives:
// whatever breaks, it lists anew and goes on. Owned by whoever shows what is there (ClusterMembership,
// Election).
//
// Thread-safe. The listeners are called one at a time, on the coordinator's threads; they must not block.
#ifndef EPIC_COMMON_COORDINATION_PREFIX_MIRROR_H_
#define EPIC_COMMON_COORDINATION_PREFIX_MIRROR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/coordination/coordinator.h"

namespace epic {

class PrefixMirror : public std::enable_shared_from_this<PrefixMirror> {
 public:
  struct Options {
    Coordinator* coordinator = nullptr;  // it, the timers and the clock outlive the mirror
    Timers* timers = nullptr;
    const Clock* clock = nullptr;
    std::string prefix;
    int64_t retry_ms = 200;      // after a listing that failed
    int64_t relist_ms = 30'000;  // between two listings, though nothing broke: nothing stays wrong for longer
  };
  struct Listeners {
    // Everything that is there now. `history_changed`: the store turned out to be another one, or an older
    // state of itself, since the listing before.
    std::function<void(const Listing&, bool history_changed)> listed;
    // What changed since. REQUIRES: not list_again.
    std::function<void(const WatchUpdate&)> changed;
  };

  static std::shared_ptr<PrefixMirror> Start(Options options, Listeners listeners);
  ~PrefixMirror() { Stop(); }
  PrefixMirror(const PrefixMirror&) = delete;
  PrefixMirror& operator=(const PrefixMirror&) = delete;
  // Begins no more calls of listeners; a running one goes on. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  PrefixMirror(Options options, Listeners listeners);

  void List() ABSL_LOCKS_EXCLUDED(mu_);
  void Listed(const absl::StatusOr<Listing>& listing) ABSL_LOCKS_EXCLUDED(mu_);
  void Watch(Revision from) ABSL_LOCKS_EXCLUDED(mu_);
  void Updated(uint64_t round, const WatchUpdate& update) ABSL_LOCKS_EXCLUDED(mu_);
  void TimeToList() ABSL_LOCKS_EXCLUDED(mu_);
  // Lists in `ms`, unless the timer is set for earlier.
  void ListIn(int64_t ms) ABSL_LOCKS_EXCLUDED(mu_);

  // Constant after construction.
  const Options options_;
  const Listeners listeners_;

  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool listing_ ABSL_GUARDED_BY(mu_) = false;
  bool history_changed_ ABSL_GUARDED_BY(mu_) = false;  // since the last listing that was told
  uint64_t histories_lost_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t round_ ABSL_GUARDED_BY(mu_) = 0;  // of watches: what another one tells is passed over
  Revision told_ ABSL_GUARDED_BY(mu_) = 0;   // everything up to it, in this history
  WatchId watch_ ABSL_GUARDED_BY(mu_) = 0;   // 0: none
  TimerId timer_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t timer_ns_ ABSL_GUARDED_BY(mu_) = 0;  // 0: none is set
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_PREFIX_MIRROR_H_
