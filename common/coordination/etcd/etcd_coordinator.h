// The Coordinator (coordinator.h) of a cluster whose processes share etcd, version 3.4 or newer. One for a
// process. Besides gRPC's threads it has one, on which everything is called back; it needs Timers.
//
// Any number of endpoints, one in use at a time; etcd_core.h says how they take turns and how a restored
// store is noticed. TLS as the Credentials say. Users and passwords of etcd are not spoken: mTLS is what
// keeps others out.
#ifndef EPIC_COMMON_COORDINATION_ETCD_ETCD_COORDINATOR_H_
#define EPIC_COMMON_COORDINATION_ETCD_ETCD_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/coordination/coordinator.h"
#include "common/coordination/etcd/etcd_core.h"
#include "common/coordination/etcd/etcd_leases.h"
#include "common/coordination/etcd/etcd_options.h"
#include "common/coordination/etcd/etcd_watches.h"

namespace epic {

class EtcdCoordinator final : public Coordinator {
 public:
  // REQUIRES: at least one endpoint, and timers. Begins to connect at once; fails for no store that is away.
  explicit EtcdCoordinator(const EtcdOptions& options);
  ~EtcdCoordinator() override { Stop(); }
  EtcdCoordinator(const EtcdCoordinator&) = delete;
  EtcdCoordinator& operator=(const EtcdCoordinator&) = delete;

  void List(KeyRange range, Revision at, Done<Listing> done) override;
  void Commit(Transaction transaction, Done<TransactionResult> done) override;
  void GrantLease(int64_t ttl_ms, LeaseListener listener, Done<Lease> done) override;
  void RevokeLease(LeaseId lease, DoneStatus done) override;
  void AbandonLease(LeaseId lease) override { leases_.Forget(lease); }
  absl::StatusOr<WatchId> Watch(KeyRange range, Revision from, WatchListener listener) override;
  void Unwatch(WatchId watch) override { watches_.Remove(watch); }
  CoordinationHealth health() const override { return core_->health(); }
  void Stop() override;

 private:
  // What a call of a user has come to.
  struct Attempts {
    uint64_t call = 0;
    int64_t deadline_ns = 0;
    size_t count = 0;  // that were not answered
  };
  struct ListCall;
  struct GrantCall;

  // Enters a call; Stop calls `fail` unless it has left before. 0: refused, `fail` was called.
  uint64_t Enter(std::function<void(absl::Status)> fail) ABSL_LOCKS_EXCLUDED(mu_);
  // False: Stop has answered it.
  bool Leave(uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);
  Attempts NewAttempts(uint64_t call) const;
  int64_t LeftMs(const Attempts& attempts) const;
  // Begins `again` at once or, when all endpoints have had their turn, a little later. False: there is no
  // time left.
  bool TryAgain(const Attempts& attempts, std::function<void()> again);

  void ListOn(const std::shared_ptr<ListCall>& call);
  void Listed(const std::shared_ptr<ListCall>& call, const EtcdCore::Result<etcdpb::RangeResponse>& result);
  void GrantOn(const std::shared_ptr<GrantCall>& call);
  void Granted(const std::shared_ptr<GrantCall>& call,
               const EtcdCore::Result<etcdpb::LeaseGrantResponse>& result);
  void RevokeOn(LeaseId lease, Attempts attempts, const DoneStatus& done);
  void Probe();
  absl::Status StatusOf(const grpc::Status& status, size_t endpoint) const;

  // Constant after construction; synchronise themselves.
  const std::shared_ptr<EtcdCore> core_;
  EtcdLeases leases_;
  EtcdWatches watches_;

  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t next_call_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, std::function<void(absl::Status)>> calls_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_ETCD_ETCD_COORDINATOR_H_
