// A path around another one, in which things go wrong: ranges that come late, never, in another order, cut
// short or with a flipped bit, and a peer that dies and comes back, in the same life or another. Drawn by a
// seed; the draws are the same whenever the ranges end in the same order. A damaged range is checked anew as
// a path would (range_check.h), and what the check says is what is told. Owned by a test. Tests only.
#ifndef EPIC_COMMON_TRANSPORT_TESTING_FAULTY_PATH_H_
#define EPIC_COMMON_TRANSPORT_TESTING_FAULTY_PATH_H_

#include <cstdint>
#include <memory>

#include "common/base/timers.h"
#include "common/transport/transport.h"

namespace epic::transport {

// Chances in percent. Of each range that came well:
struct PathFaults {
  int delay = 0;
  int drop = 0;     // it ends at the deadline, or when it is cancelled
  int reorder = 0;  // after the next one, or delay_max_ms later
  int truncate = 0;
  int corrupt = 0;
  // Of each fetch: the peer dies after the first range that ends; all fetches under way end with PathDown.
  int die = 0;

  int64_t delay_max_ms = 5;
  int64_t dead_ms = 10;       // 0: until Revive()
  bool another_life = false;  // leases of before are over when it is back
};

class FaultyCore;

class FaultyPath final : public Path {
 public:
  // `timers`, of `clock`, outlive it. `peer_down`: called when the peer dies here.
  FaultyPath(std::unique_ptr<Path> path, const PathFaults& faults, uint64_t seed, const Clock* clock,
             Timers* timers, PeerDownFn peer_down = {});
  ~FaultyPath() override;

  Capabilities capabilities() const override;
  FetchId Fetch(FetchRequest request, std::shared_ptr<FetchListener> listener) override;
  void Cancel(FetchId id) override;
  void Probe(int64_t deadline_steady_ns, std::function<void(const absl::Status&)> done) override;
  void Stop() override;

  // By hand, at once or soon.
  void Kill();
  void Revive(bool another_life);

 private:
  const std::shared_ptr<FaultyCore> core_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TESTING_FAULTY_PATH_H_
