// Nodes of a cluster over a coordination store in memory, on virtual time: what tests of membership and
// elections share. Tests only; one thread.
#ifndef EPIC_COMMON_COORDINATION_TESTING_MEMBERSHIP_WORLD_H_
#define EPIC_COMMON_COORDINATION_TESTING_MEMBERSHIP_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/coordination/cluster_membership.h"
#include "common/coordination/testing/fake_coordination.h"
#include "common/testing/manual_timers.h"

namespace epic::testing {

inline constexpr int64_t kTestLeaseMs = 5'000;
inline constexpr int64_t kTestGraceMs = 15'000;

class MembershipWorld {
 public:
  // One life of a node; it ends without a word when this does.
  struct Node {
    std::unique_ptr<FakeCoordinator> coordinator;
    std::shared_ptr<ClusterMembership> membership;
    Incarnation incarnation;
    ~Node() {
      membership->Stop();
      coordinator->Stop();
    }
  };

  // An id of none: it only looks on.
  std::unique_ptr<Node> Start(const std::string& id, uint64_t boot = 1) {
    auto node = std::make_unique<Node>();
    node->coordinator = std::make_unique<FakeCoordinator>(&server);
    node->incarnation = {boot, 42};
    ClusterMembership::Options options{node->coordinator.get(), &timers, &clock};
    options.settings.endpoints = {"127.0.0.1:1"};
    options.settings.lease_ms = kTestLeaseMs;
    options.settings.grace_ms = kTestGraceMs;
    if (!id.empty()) {
      options.self.emplace();
      options.self->kind = NodeKind::kKvStore;
      options.self->id = id;
      options.self->incarnation = node->incarnation;
      options.self->addresses = {{"grpc", "127.0.0.1:8081"}};
      options.self->state = NodeState::kServing;
    }
    node->membership = *ClusterMembership::Start(options);
    return node;
  }

  // id:boot, with ? for suspected and ~ for kept.
  static std::string Shown(const Membership& membership) {
    std::string shown;
    for (const Member& member : membership.view()->members) {
      shown += (shown.empty() ? "" : " ") + member.node.id + ":" +
               std::to_string(member.node.incarnation.boot) + (member.suspected ? "?" : "") +
               (member.confirmed ? "" : "~");
    }
    return shown;
  }
  void PassMs(int64_t ms) { timers.AdvanceMs(ms); }
  // The time in ms that `condition` took; nullopt: it did not come true within `limit_ms`.
  std::optional<int64_t> Await(int64_t limit_ms, const std::function<bool()>& condition) {
    for (int64_t ms = 0; ms <= limit_ms; ms += 10) {
      if (condition()) return ms;
      timers.AdvanceMs(10);
    }
    return std::nullopt;
  }

  ManualClock clock;
  ManualTimers timers{&clock};
  FakeCoordinationServer server{&timers, &clock};
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_COORDINATION_TESTING_MEMBERSHIP_WORLD_H_
