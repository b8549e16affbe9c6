// The leases of transfers that are under way at one store node: renewed while they last, released after.
// Owned by whoever reads from the node; thread-safe. One thread, which alone calls the node; what it does not
// get to say ends by itself there.
#ifndef EPIC_COMMON_RPC_PULL_LEASE_KEEPER_H_
#define EPIC_COMMON_RPC_PULL_LEASE_KEEPER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/kv_store/object_client.h"

namespace epic {

class LeaseKeeper {
 public:
  // `objects` and `clock` outlive it. `lease_ms`: for how long leases are granted.
  LeaseKeeper(ObjectClient* objects, int64_t lease_ms, const Clock* clock);
  ~LeaseKeeper() { Stop(); }
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // From its grant on, until LetGo.
  void Keep(const RemoteLease& lease) ABSL_LOCKS_EXCLUDED(mu_);
  // Never blocks.
  void LetGo(const RemoteLease& lease) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the thread. What was let go of just before is not released any more. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // Leases that are kept.
  size_t kept() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct LeaseLess {
    bool operator()(const RemoteLease& a, const RemoteLease& b) const {
      return a.incarnation != b.incarnation ? a.incarnation < b.incarnation : a.number < b.number;
    }
  };
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // In calls of as many as one may have, each of one life of the node.
  void Renew(const std::vector<RemoteLease>& leases);
  void Release(const std::vector<RemoteLease>& leases);

  ObjectClient* const objects_;
  const int64_t lease_ms_;
  const Clock* const clock_;

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::map<RemoteLease, int64_t, LeaseLess> kept_ ABSL_GUARDED_BY(mu_);  // when it is to be renewed
  std::vector<RemoteLease> over_ ABSL_GUARDED_BY(mu_);                   // to be released

  std::thread thread_;  // last: uses all of the above
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_PULL_LEASE_KEEPER_H_
