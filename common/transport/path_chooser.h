// The way to one peer out of several: a Path over paths in order of preference (shm, ucx, grpc). Owned by
// whoever talks to the peer, one for each peer. Thread-safe as every Path.
//
// A fetch goes out in batches of ranges, as many bytes at a time as its prefetch depth and the budget of the
// process allow, each on the best path at that time. Ranges that a path does not bring are fetched again on
// the next one, only those; each path is tried at most twice for a range, so a fetch fails only when no path
// brings it, the lease is over, or time is. A path that fails cools down, is probed and comes back
// (path_health.h). A batch that does not move is looked after: its bytes no longer count in the budget, and
// its path is probed; if it does not answer, the batch is given up there and goes another way.
//
// All paths bring the bytes of the same generation (transport.h), so a confirmation that was lost with one
// path is asked for on another: a small range is read again into scratch memory.
#ifndef EPIC_COMMON_TRANSPORT_PATH_CHOOSER_H_
#define EPIC_COMMON_TRANSPORT_PATH_CHOOSER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/transport/path_health.h"
#include "common/transport/progress_thread.h"
#include "common/transport/traffic_budget.h"
#include "common/transport/transfer_metrics.h"
#include "common/transport/transport.h"

namespace epic::transport {

struct ChooserOptions {
  // All outlive the chooser. One thread and one budget serve all choosers of a process; callbacks come on the
  // thread.
  const Clock* clock = SystemClock::Get();
  Timers* timers = nullptr;
  ProgressThread* thread = nullptr;
  TrafficBudget* budget = nullptr;
  TransferMetrics* metrics = nullptr;  // nullptr: nothing is counted

  uint64_t seed = 0;  // of the jitter of cool-downs: different in each process
  CooldownOptions cooldown;
  uint64_t batch_bytes = uint64_t{4} << 20;      // of one batch, unless a single range is larger
  uint64_t prefetch_bytes = uint64_t{16} << 20;  // under way for one fetch, unless a single batch is larger
  int64_t stall_ms = 200;       // a batch that does not move is looked after; the pause doubles
  int64_t stall_max_ms = 2000;  // up to this
  int64_t probe_ms = 1000;      // for the answer to a probe
  size_t fetches_max = 1024;    // under way; further ones end with PathDown
  PeerDownFn peer_down;         // each time that one of the paths says so
};

// Makes one of the paths; it calls the function that it is given when its peer is down.
using PathMaker = std::function<std::unique_ptr<Path>(PeerDownFn)>;

// REQUIRES: 1 to 8 makers, in order of preference; timers, thread and budget.
std::unique_ptr<Path> MakePathChooser(const std::vector<PathMaker>& makers, const ChooserOptions& options);

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_PATH_CHOOSER_H_
