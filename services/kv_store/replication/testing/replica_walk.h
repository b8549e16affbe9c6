// A random walk of a cluster: users change a few contexts through any node while messages get lost, nodes
// crash, are taken for dead, lose a disk, stay away, and come back; after each step what every serving node
// answers is held against what users were promised. At the end the faults stop, all nodes come back, and must
// agree. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_REPLICA_WALK_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_REPLICA_WALK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "services/kv_store/replication/testing/promises.h"
#include "services/kv_store/replication/testing/sim_cluster.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {

// Over all walks, to see that they get somewhere.
struct WalkCounts {
  uint64_t acknowledged = 0, given_up = 0, crashes = 0, lost_disks = 0, taken_for_dead = 0;
  uint64_t repaired = 0, checks_live = 0, checks_over = 0, stuck = 0;
};

class ReplicaWalk {
 public:
  ReplicaWalk(uint64_t seed, const SimOptions& options, WalkCounts* counts);
  // Fails the test where a promise breaks.
  void Run(int steps);

 private:
  struct Context {
    NewContext context;
    ContextKey key;
    Promises promises;
  };
  // A change that was begun; answers of nodes that died never come.
  struct Asked {
    size_t context;
    uint64_t begun;
    int64_t ends_ms;
  };

  void Step();
  void Ask();
  void Answered(size_t context, uint64_t begun, const absl::Status& status, int64_t until_ms);
  void GiveUpOld(bool all);
  void Fail();
  void Return();
  void Check();
  void CheckContext(const Context& context, int64_t now_ms);
  void Settle();
  void CheckSettled();
  size_t Below(size_t bound) { return cluster_.rng().Below(bound); }
  std::string Standings() const;
  void Note(const std::string& what);

  const SimOptions options_;
  WalkCounts* const counts_;
  SimCluster cluster_;
  std::vector<Context> contexts_;
  std::vector<Asked> asked_;
  std::vector<bool> shown_down_;
  size_t losses_left_;
  size_t laggard_ = 0;
  std::vector<std::string> notes_;
};

// Walks for each seed from 1 on, or for the one that --gtest_random_seed names; stops at the first that
// fails, whose trace names it.
void WalkSeeds(const SimOptions& options, uint64_t seeds, int steps);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_TESTING_REPLICA_WALK_H_
