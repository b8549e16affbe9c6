// A coordination store in memory with faults on demand, and its coordinators: what tests and simulations run
// on. The semantics are those of coordinator.h to the letter; one contract test says so of this and of etcd.
//
// Time is that of the Timers and the Clock handed in, which outlive it: with ManualTimers everything happens
// on the test's thread, in an order that replays; with a TimerThread, stopped before the server ends, it
// works, too. Thread-safe. The server outlives its coordinators.
#ifndef EPIC_COMMON_COORDINATION_TESTING_FAKE_COORDINATION_H_
#define EPIC_COMMON_COORDINATION_TESTING_FAKE_COORDINATION_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/coordination/coordinator.h"

namespace epic::testing {

class FakeCoordinator;

class FakeCoordinationServer {
 public:
  FakeCoordinationServer(Timers* timers, const Clock* clock) : timers_(timers), clock_(clock) {}
  FakeCoordinationServer(const FakeCoordinationServer&) = delete;
  FakeCoordinationServer& operator=(const FakeCoordinationServer&) = delete;

  // All members stop, or are back. While they are stopped no lease ends; each gets its whole time anew.
  void SetDown(bool down) ABSL_LOCKS_EXCLUDED(mu_);
  // Every answer and every update comes that much later.
  void SetDelayMs(int64_t delay_ms) ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the changes up to now.
  void Compact() ABSL_LOCKS_EXCLUDED(mu_);
  // Ends a lease at once, as if its time were over.
  void EndLease(LeaseId lease) ABSL_LOCKS_EXCLUDED(mu_);
  // The next `count` commits are applied, and their answers lost.
  void LoseAnswers(int count) ABSL_LOCKS_EXCLUDED(mu_);

  struct State {
    std::map<std::string, KeyValue> items;  // at `revision`
    std::map<std::string, KeyValue> base;   // at `compacted`
    Revision revision = 1;
    Revision compacted = 0;
    struct LeaseEntry {
      int64_t ttl_ms = 0;
      int64_t ends_ns = 0;
    };
    std::map<LeaseId, LeaseEntry> leases;
    std::deque<KeyChange> history;  // after `compacted`
  };
  State Backup() const ABSL_LOCKS_EXCLUDED(mu_);
  // The store is what it was at the backup: its revision goes back. Leases of then get their whole time anew.
  // `new_cluster`: under another cluster id.
  void Restore(const State& backup, bool new_cluster) ABSL_LOCKS_EXCLUDED(mu_);

  // What is stored, at once and whatever the faults.
  std::vector<KeyValue> Items() const ABSL_LOCKS_EXCLUDED(mu_);
  size_t leases() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class FakeCoordinator;

  struct Call {
    std::function<void(absl::Status)> work;  // OK: it got there
    int64_t deadline_ns = 0;
  };
  struct WatchEntry {
    KeyRange range;
    Revision next = 0;
    Coordinator::WatchListener listener;
    bool scheduled = false;
    bool of_lost_history = false;
  };
  struct KeptLease {
    int64_t ttl_ms = 0;
    int64_t confirmed_ns = 0;
    bool uncertain = false;
    Coordinator::LeaseListener listener;
  };
  struct Client {
    bool cut_off = false;
    bool stopped = false;
    int running = 0;  // callbacks
    uint64_t seen_history = 0;
    CoordinationHealth health;
    std::map<uint64_t, Call> calls;
    std::map<WatchId, WatchEntry> watches;
    std::map<LeaseId, KeptLease> leases;
  };
  using ClientPtr = std::shared_ptr<Client>;

  void AddClient(const ClientPtr& client) ABSL_LOCKS_EXCLUDED(mu_);
  void StopClient(const ClientPtr& client) ABSL_LOCKS_EXCLUDED(mu_);
  void SetCutOff(const ClientPtr& client, bool cut_off) ABSL_LOCKS_EXCLUDED(mu_);
  CoordinationHealth HealthOf(const ClientPtr& client) const ABSL_LOCKS_EXCLUDED(mu_);
  // Not OK: refused; `work` is not called then.
  absl::Status Start(const ClientPtr& client, std::function<void(absl::Status)> work)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Arrive(const ClientPtr& client, uint64_t call) ABSL_LOCKS_EXCLUDED(mu_);

  absl::StatusOr<Listing> List(const KeyRange& range, Revision at) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<TransactionResult> Commit(const Transaction& transaction) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<Lease> Grant(const ClientPtr& client, int64_t ttl_ms, Coordinator::LeaseListener listener)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<WatchId> AddWatch(const ClientPtr& client, WatchEntry watch) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveWatch(const ClientPtr& client, WatchId id) ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetLease(const ClientPtr& client, LeaseId id) ABSL_LOCKS_EXCLUDED(mu_);

  // Timers.
  void Deliver(const ClientPtr& client, WatchId id) ABSL_LOCKS_EXCLUDED(mu_);
  void KeepAlive(const ClientPtr& client, LeaseId id) ABSL_LOCKS_EXCLUDED(mu_);
  void CheckLease(LeaseId id) ABSL_LOCKS_EXCLUDED(mu_);
  void Probe(const ClientPtr& client) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls back, unless the client has stopped, and lets Stop wait for it.
  void Tell(const ClientPtr& client, const std::function<void()>& callback) ABSL_LOCKS_EXCLUDED(mu_);

  // Whether the client reaches the server now; notes it in its health.
  bool Reaches(const ClientPtr& client) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Schedule(const ClientPtr& client, WatchId id, WatchEntry* watch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ScheduleAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ProbeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Put(const Change& change, Revision revision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Erase(const std::function<bool(const KeyValue&)>& matches, Revision revision)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remove(LeaseId lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RenewAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t AfterMs(int64_t ms) const { return clock_->SteadyNs() + ms * 1'000'000; }

  // Constant after construction; synchronise themselves.
  Timers* const timers_;
  const Clock* const clock_;

  mutable Mutex mu_;
  CondVar told_;
  State state_ ABSL_GUARDED_BY(mu_);
  std::vector<ClientPtr> clients_ ABSL_GUARDED_BY(mu_);
  uint64_t history_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t cluster_ ABSL_GUARDED_BY(mu_) = 1;
  bool down_ ABSL_GUARDED_BY(mu_) = false;
  int64_t delay_ms_ ABSL_GUARDED_BY(mu_) = 0;
  int lose_answers_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
};

class FakeCoordinator final : public Coordinator {
 public:
  explicit FakeCoordinator(FakeCoordinationServer* server);
  ~FakeCoordinator() override { Stop(); }
  FakeCoordinator(const FakeCoordinator&) = delete;
  FakeCoordinator& operator=(const FakeCoordinator&) = delete;

  // Nothing of this one gets to the server and back, while others do.
  void SetCutOff(bool cut_off) { server_->SetCutOff(client_, cut_off); }

  void List(KeyRange range, Revision at, Done<Listing> done) override;
  void Commit(Transaction transaction, Done<TransactionResult> done) override;
  void GrantLease(int64_t ttl_ms, LeaseListener listener, Done<Lease> done) override;
  void RevokeLease(LeaseId lease, DoneStatus done) override;
  void AbandonLease(LeaseId lease) override;
  absl::StatusOr<WatchId> Watch(KeyRange range, Revision from, WatchListener listener) override;
  void Unwatch(WatchId watch) override;
  CoordinationHealth health() const override;
  void Stop() override { server_->StopClient(client_); }

 private:
  FakeCoordinationServer* const server_;
  const FakeCoordinationServer::ClientPtr client_;
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_COORDINATION_TESTING_FAKE_COORDINATION_H_
