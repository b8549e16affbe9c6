// Membership and elections over real etcd processes that stop, come back and are restored from a backup.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/coordination/cluster_membership.h"
#include "common/coordination/election.h"
#include "common/coordination/etcd/etcd_coordinator.h"
#include "common/coordination/etcd/testing/etcd_processes.h"
#include "common/coordination/etcd/testing/etcd_world.h"
#include "common/testing/status_matchers.h"

namespace epic::testing {
namespace {

constexpr int64_t kLeaseMs = 3'000;
constexpr int64_t kGraceMs = 20'000;

class MembershipOverEtcdTest : public ::testing::Test {
 protected:
  struct Node {
    EtcdCoordinator* coordinator = nullptr;
    std::shared_ptr<ClusterMembership> membership;
    std::shared_ptr<Election> election;
    ~Node() { End(); }
    // Without a word.
    void End() {
      membership->Stop();
      election->Stop();
      coordinator->Stop();
    }
  };

  void SetUp() override {
    if (!EtcdProcesses::Installed()) GTEST_SKIP() << "etcd is not installed (package etcd-server)";
  }
  void StartEtcd(size_t members) {
    etcd_ = std::make_unique<EtcdProcesses>(members);
    world_ = std::make_unique<EtcdWorld>(etcd_.get());
  }
  std::unique_ptr<Node> Start(const std::string& id, uint64_t boot = 1) {
    auto node = std::make_unique<Node>();
    node->coordinator = world_->NewEtcd();
    ClusterMembership::Options options{node->coordinator, world_->timers(), SystemClock::Get()};
    options.settings.endpoints = etcd_->addresses();
    options.settings.lease_ms = kLeaseMs;
    options.settings.grace_ms = kGraceMs;
    options.self.emplace();
    options.self->kind = NodeKind::kKvStore;
    options.self->id = id;
    options.self->incarnation = {boot, 1};
    options.self->state = NodeState::kServing;
    node->membership = *ClusterMembership::Start(options);
    node->election = Election::Start(
        {node->coordinator, world_->timers(), SystemClock::Get(), "epic/leaders/repair/", id, kLeaseMs});
    return node;
  }
  static std::string Shown(const Node& node) {
    std::string shown;
    for (const Member& member : node.membership->view()->members) {
      shown +=
          (shown.empty() ? "" : " ") + member.node.id + ":" + std::to_string(member.node.incarnation.boot);
    }
    return shown;
  }
  bool Await(const std::function<bool()>& condition) { return AwaitReal(40'000, condition); }

  std::unique_ptr<EtcdProcesses> etcd_;
  std::unique_ptr<EtcdWorld> world_;
};

TEST_F(MembershipOverEtcdTest, NodesComeDieAndComeBackAndAllOfEtcdMayBeAway) {
  StartEtcd(3);
  const auto a = Start("a");
  ASSERT_TRUE(Await([&] { return a->election->view().leading; }));
  auto b = Start("b");
  ASSERT_TRUE(Await([&] { return Shown(*a) == "a:1 b:1" && Shown(*b) == "a:1 b:1"; }));
  b->End();
  ASSERT_TRUE(Await([&] { return Shown(*a) == "a:1"; }));
  b = Start("b", 2);
  ASSERT_TRUE(Await([&] { return Shown(*a) == "a:1 b:2" && Shown(*b) == "a:1 b:2"; }));
  bool dropped = false;
  a->membership->AddListener([&](const MemberViewPtr& view) { dropped |= view->Find("b") == nullptr; });
  etcd_->KillAll();
  // Longer than the leases.
  ASSERT_TRUE(Await([&] { return a->membership->health().away_ms > 2 * kLeaseMs; }));
  EXPECT_EQ(Shown(*a), "a:1 b:2");
  EXPECT_FALSE(a->election->view().leading);
  etcd_->StartAll();
  ASSERT_TRUE(Await([&] {
    return a->membership->health().registered && b->membership->health().registered &&
           a->election->view().leading != b->election->view().leading;
  }));
  const auto c = Start("c");
  ASSERT_TRUE(Await([&] { return Shown(*a) == "a:1 b:2 c:1" && Shown(*b) == "a:1 b:2 c:1"; }));
  a->membership->Stop();
  EXPECT_FALSE(dropped);
}

TEST_F(MembershipOverEtcdTest, AnEtcdRestoredFromABackupDropsNobodyWhoLives) {
  StartEtcd(1);
  const auto a = Start("a");
  ASSERT_TRUE(Await([&] { return Shown(*a) == "a:1"; }));
  etcd_->Kill(0);
  etcd_->SaveData(0, "backup");
  etcd_->Start(0);
  const auto b = Start("b");
  ASSERT_TRUE(Await([&] { return Shown(*a) == "a:1 b:1" && Shown(*b) == "a:1 b:1"; }));
  bool dropped = false;
  a->membership->AddListener([&](const MemberViewPtr& view) {
    dropped |= view->Find("a") == nullptr || view->Find("b") == nullptr;
  });
  // The store goes back by more than what happens while it is started again.
  for (int i = 0; i < 20; ++i) b->membership->SetModels({{"ff", std::to_string(i)}});
  ASSERT_TRUE(Await([&] {
    const Member* member = a->membership->view()->Find("b");
    return member != nullptr && !member->node.models.empty() && member->node.models[0].alias == "19";
  }));
  etcd_->Kill(0);
  etcd_->RestoreData(0, "backup");
  etcd_->Start(0);
  ASSERT_TRUE(Await([&] {
    return a->coordinator->health().histories_lost > 0 && a->membership->health().registered &&
           b->membership->health().registered;
  }));
  ASSERT_TRUE(Await([&] {
    const MemberViewPtr view = a->membership->view();
    return view->Find("a") != nullptr && view->Find("b") != nullptr && view->Find("a")->confirmed &&
           view->Find("b")->confirmed;
  }));
  EXPECT_EQ(a->membership->view()->Find("b")->node.models[0].alias, "19");
  a->membership->Stop();
  EXPECT_FALSE(dropped);
}

}  // namespace
}  // namespace epic::testing
