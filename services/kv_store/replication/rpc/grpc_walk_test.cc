// The walks of replica_walk_test.cc with real gRPC between the nodes: what a message loses on its way, or
// takes for something else, breaks a promise or keeps nodes from agreeing.
#include <memory>

#include <gtest/gtest.h>

#include "services/kv_store/replication/rpc/testing/grpc_ways.h"
#include "services/kv_store/replication/testing/replica_walk.h"

namespace epic::kv_store {
namespace {

SimOptions OverGrpc(SimOptions options, GrpcWays* ways) {
  options.way = [ways](size_t to, std::shared_ptr<ReplicaPeer> inlet) {
    return ways->To(to, std::move(inlet));
  };
  return options;
}

TEST(GrpcWalkTest, ThreeNodesKeepTheirPromises) {
  GrpcWays ways(3);
  WalkSeeds(OverGrpc({}, &ways), 24, 400);
  EXPECT_GT(ways.carried(), 1000u);
}

TEST(GrpcWalkTest, FiveNodesInThreeZonesKeepTheirPromises) {
  GrpcWays ways(5);
  WalkSeeds(OverGrpc({.nodes = 5, .zones = 3}, &ways), 6, 400);
}

}  // namespace
}  // namespace epic::kv_store
