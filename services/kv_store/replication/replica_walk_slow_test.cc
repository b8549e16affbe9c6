// As replica_walk_test.cc, with more seeds and longer walks.
#include <gtest/gtest.h>

#include "services/kv_store/replication/testing/replica_walk.h"

namespace epic::kv_store {
namespace {

TEST(ReplicaWalkSlowTest, ThreeNodesKeepTheirPromises) { WalkSeeds({}, 2000, 800); }

TEST(ReplicaWalkSlowTest, FourNodesOfThreeReplicasKeepTheirPromises) {
  WalkSeeds({.nodes = 4, .replicas = 3}, 300, 800);
}

TEST(ReplicaWalkSlowTest, SixNodesInThreeZonesKeepTheirPromises) {
  WalkSeeds({.nodes = 6, .zones = 3}, 300, 800);
}

}  // namespace
}  // namespace epic::kv_store
