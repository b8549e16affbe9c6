// The watches of an EtcdCoordinator: one stream each, opened anew where it broke off, on whatever endpoint is
// in use then. The next message of a stream is read when its listener has taken the one before: a slow
// listener holds one message, and etcd the rest. Owned by EtcdCoordinator. Thread-safe.
#ifndef EPIC_COMMON_COORDINATION_ETCD_ETCD_WATCHES_H_
#define EPIC_COMMON_COORDINATION_ETCD_ETCD_WATCHES_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/coordination/coordinator.h"
#include "common/coordination/etcd/etcd_core.h"

namespace epic {

class EtcdWatches {
 public:
  explicit EtcdWatches(EtcdCore* core) : core_(core) {}

  absl::StatusOr<WatchId> Add(KeyRange range, Revision from, Coordinator::WatchListener listener)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(WatchId id) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all of them, since the history is another one. On the thread that calls back.
  void EndAll() ABSL_LOCKS_EXCLUDED(mu_);
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Watched {
    KeyRange range;
    Revision next = 0;
    Coordinator::WatchListener listener;
    uint64_t call = 0;     // of its stream; 0: none is open
    uint64_t history = 0;  // known when that was opened
    int failures = 0;      // streams in a row that brought nothing
  };

  void Open(WatchId id) ABSL_LOCKS_EXCLUDED(mu_);
  // Of the stream of `call`. False: it is wanted no more.
  bool Take(WatchId id, uint64_t call, const etcdpb::WatchResponse& response) ABSL_LOCKS_EXCLUDED(mu_);
  void Ended(WatchId id, uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);
  void EndOne(WatchId id, WatchUpdate::Kind why) ABSL_LOCKS_EXCLUDED(mu_);

  EtcdCore* const core_;
  Mutex mu_;
  std::map<WatchId, Watched> watches_ ABSL_GUARDED_BY(mu_);
  WatchId next_id_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_ETCD_ETCD_WATCHES_H_
