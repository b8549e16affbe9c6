// The path to a peer in the same process: copies out of its KvSource, without sockets. For tests of
// everything above the paths.
//
// Each path has a progress thread: all of its state and all callbacks are that thread's. It copies a piece of
// each fetch in turn, so that fetches share it. Not here: objects of the own process without a copy (they are
// shared_ptr<const KvObject> anyway).
#ifndef EPIC_COMMON_TRANSPORT_INPROC_INPROC_PATH_H_
#define EPIC_COMMON_TRANSPORT_INPROC_INPROC_PATH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/transport/kv_source.h"
#include "common/transport/transport.h"

namespace epic::transport {

class InprocCore;

// Where a peer may be. Shared by its paths. Thread-safe.
class InprocEndpoint {
 public:
  // The peer is there. REQUIRES: none is. `source` outlives Detach and, for what is still held, the paths.
  void Attach(KvSource* source) ABSL_LOCKS_EXCLUDED(mu_);
  // The peer is gone: fetches end with PathDown; returns when no path has anything of its source. Not from a
  // callback of a path.
  void Detach() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class InprocCore;
  // Called by the paths. nullptr: nobody there.
  KvSource* source() const ABSL_LOCKS_EXCLUDED(mu_);
  void Add(std::weak_ptr<InprocCore> core) ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  KvSource* source_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<std::weak_ptr<InprocCore>> cores_ ABSL_GUARDED_BY(mu_);
};

struct InprocOptions {
  const Clock* clock = SystemClock::Get();
  Timers* timers = nullptr;  // of the same clock; outlives the path
  uint64_t piece_bytes = uint64_t{1} << 20;
  size_t fetches_max = 1024;  // under way; further ones end with PathDown
  PeerDownFn peer_down;       // each time that the peer is detached
};

// REQUIRES: options.timers, piece_bytes > 0.
std::unique_ptr<Path> MakeInprocPath(std::shared_ptr<InprocEndpoint> endpoint, InprocOptions options);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_INPROC_INPROC_PATH_H_
