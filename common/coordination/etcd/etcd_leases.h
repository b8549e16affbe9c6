// The leases that an EtcdCoordinator keeps alive: one short call each three tenths of a lease's time, begun
// anew on the next endpoint when it fails, so that one dead or hung member costs no lease. Owned by
// EtcdCoordinator. All but Add and Forget runs on the thread that calls back. Thread-safe.
#ifndef EPIC_COMMON_COORDINATION_ETCD_ETCD_LEASES_H_
#define EPIC_COMMON_COORDINATION_ETCD_ETCD_LEASES_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/coordination/coordinator.h"
#include "common/coordination/etcd/etcd_core.h"

namespace epic {

class EtcdLeases {
 public:
  explicit EtcdLeases(EtcdCore* core) : core_(core) {}

  size_t size() const ABSL_LOCKS_EXCLUDED(mu_);
  // Keeps `lease` from now on; it was asked for at `sent_ns`. The listener hears nothing before this returns
  // to a callback.
  void Add(const Lease& lease, int64_t sent_ns, Coordinator::LeaseListener listener) ABSL_LOCKS_EXCLUDED(mu_);
  void Forget(LeaseId id) ABSL_LOCKS_EXCLUDED(mu_);
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Kept {
    int64_t ttl_ms = 0;
    int64_t confirmed_ns = 0;  // when the last renewal that was answered was sent
    bool uncertain = false;
    Coordinator::LeaseListener listener;
  };

  void Renew(LeaseId id) ABSL_LOCKS_EXCLUDED(mu_);
  // `ttl_s`: what the store says is left; below 1: there is no such lease.
  void Renewed(LeaseId id, int64_t sent_ns, int64_t ttl_s) ABSL_LOCKS_EXCLUDED(mu_);
  void NotRenewed(LeaseId id) ABSL_LOCKS_EXCLUDED(mu_);
  void CheckTime(LeaseId id) ABSL_LOCKS_EXCLUDED(mu_);

  EtcdCore* const core_;
  mutable Mutex mu_;
  std::map<LeaseId, Kept> kept_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_ETCD_ETCD_LEASES_H_
