// Random walks of real Replicators over real stores: no promise breaks. More seeds are in
// replica_walk_slow_test.cc.
#include <gtest/gtest.h>

#include "services/kv_store/replication/testing/replica_walk.h"

namespace epic::kv_store {
namespace {

TEST(ReplicaWalkTest, ThreeNodesKeepTheirPromises) { WalkSeeds({}, 200, 400); }

TEST(ReplicaWalkTest, FiveNodesInThreeZonesKeepTheirPromises) {
  WalkSeeds({.nodes = 5, .zones = 3}, 60, 400);
}

}  // namespace
}  // namespace epic::kv_store
