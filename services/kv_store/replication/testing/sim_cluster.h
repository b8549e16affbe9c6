// A cluster of Replicators over real StoreCores, on one thread: tasks run in a seeded order, time passes when
// it is told to, nodes crash with what was not synced, views lag behind each other. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_SIM_CLUSTER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_SIM_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/random.h"
#include "common/testing/manual_timers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/replication/replicator.h"
#include "services/kv_store/replication/testing/faulty_peer.h"

namespace epic::kv_store {

// Runs its tasks when asked, any of them first.
class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(Rng* rng) : rng_(rng) {}
  bool TrySubmit(std::function<void()> task) override {
    tasks_.push_back(std::move(task));
    return true;
  }
  void Submit(std::function<void()> task) override { tasks_.push_back(std::move(task)); }
  // False: there is none.
  bool RunOne();

 private:
  Rng* const rng_;
  std::vector<std::function<void()>> tasks_;
};

// The one truth about members, of which each node sees some view of lately.
class SimMembers {
 public:
  SimMembers(std::vector<PlacedNode> nodes, std::string leader);
  std::shared_ptr<const MemberView> ViewOf(size_t node) const { return views_[seen_[node]]; }
  void Announce(size_t node, NodeUp up, uint64_t session);
  // The node itself sees it first.
  void ShowDown(size_t node);
  void Lead(const std::string& leader);
  bool Lags(size_t node) const { return seen_[node] + 1 < views_.size(); }
  void CatchUp(size_t node) { ++seen_[node]; }
  const MemberView& latest() const { return *views_.back(); }

 private:
  MemberView Next() const;
  std::vector<std::shared_ptr<const MemberView>> views_;
  std::vector<size_t> seen_;
};

struct SimOptions {
  size_t nodes = 3;
  size_t zones = 0;
  size_t replicas = 2;
  int64_t most_skew_ms = 50;  // of a node's clock, either way
  // By what messages go to a node, whose inlet is given; empty: they are there at once.
  std::function<std::shared_ptr<ReplicaPeer>(size_t to, std::shared_ptr<ReplicaPeer> inlet)> way;
};

class SimCluster {
 public:
  SimCluster(uint64_t seed, const SimOptions& options);
  ~SimCluster();

  size_t size() const { return nodes_.size(); }
  const std::string& name(size_t node) const { return nodes_[node].name; }
  bool IsAlive(size_t node) const { return nodes_[node].replicator != nullptr; }
  Replicator* replicator(size_t node) { return nodes_[node].replicator.get(); }
  StoreCore* store(size_t node) { return nodes_[node].store.get(); }
  bool Serves(size_t node) const;
  bool IsEmpty(size_t node) const;

  void Start(size_t node);
  // What was not synced is lost.
  void Crash(size_t node);
  // REQUIRES: it is dead.
  void LoseDisk(size_t node);
  // The others will see it down; it has seen that, if it is alive.
  void ShowDown(size_t node);

  bool RunOne() { return executor_.RunOne(); }
  // Runs all tasks there are.
  void Drain();
  void Advance(int64_t ms) { timers_.AdvanceMs(ms); }
  // Time passes, and all goes on as it should.
  void Pass(int64_t ms);
  // The view of a node comes closer to the truth; false: it is there.
  bool CatchUp(size_t node);
  // Until `is_so`, at most for `ms`; whether it is. The view of `laggard` stays as it is.
  bool PassUntil(int64_t ms, size_t laggard, const std::function<bool()>& is_so);
  bool PassUntil(int64_t ms, const std::function<bool()>& is_so) { return PassUntil(ms, size(), is_so); }

  Rng& rng() { return rng_; }
  ManualClock& clock() { return clock_; }
  FaultyNetwork& network() { return network_; }
  SimMembers& members() { return members_; }
  static ReplicatorOptions OptionsOf(const std::string& name, size_t replicas);

 private:
  class Seen;  // Membership of one node
  class SkewedClock;
  struct Node {
    std::string name;
    std::unique_ptr<SkewedClock> clock;
    std::unique_ptr<Seen> seen;
    std::shared_ptr<MemoryDisk> disk;
    std::shared_ptr<LocalPeer> inlet;  // where others' messages come in
    std::unique_ptr<StoreCore> store;
    std::shared_ptr<Replicator> replicator;
  };

  const SimOptions options_;
  Rng rng_;
  ManualClock clock_;
  epic::testing::ManualTimers timers_{&clock_};
  SimExecutor executor_{&rng_};
  FaultyNetwork network_;
  SimMembers members_;
  std::vector<Node> nodes_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_SIM_CLUSTER_H_
