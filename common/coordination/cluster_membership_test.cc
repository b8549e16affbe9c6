#include "common/coordination/cluster_membership.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/coordination/testing/calls.h"
#include "common/coordination/testing/membership_world.h"
#include "common/testing/status_matchers.h"

namespace epic::testing {
namespace {

using Node = MembershipWorld::Node;
using Phase = LeasedKeyState::Phase;

class ClusterMembershipTest : public ::testing::Test {
 protected:
  std::string Seen() { return MembershipWorld::Shown(*observer_->membership); }

  MembershipWorld world_;
  std::unique_ptr<Node> observer_ = world_.Start("");
};

TEST_F(ClusterMembershipTest, NodesSeeEachOtherComeChangeAndLeave) {
  Gathered<std::string> heard;
  observer_->membership->AddListener([&](const MemberViewPtr&) { heard.Add(Seen()); });
  const auto a = world_.Start("a");
  const auto b = world_.Start("b", 3);
  world_.PassMs(100);
  EXPECT_EQ(Seen(), "a:1 b:3");
  EXPECT_EQ(MembershipWorld::Shown(*a->membership), "a:1 b:3");
  EXPECT_EQ(heard.all().back(), "a:1 b:3");
  EXPECT_TRUE(a->membership->health().registered);
  b->membership->SetState(NodeState::kDraining);
  b->membership->SetModels({{"ff", "small"}});
  world_.PassMs(100);
  const MemberViewPtr view = observer_->membership->view();
  EXPECT_EQ(view->Find("b")->node.state, NodeState::kDraining);
  EXPECT_EQ(view->Find("b")->node.models, (std::vector<ServedModel>{{"ff", "small"}}));
  EXPECT_EQ(view->Find("b")->node.lease_ms, kTestLeaseMs);
  Gathered<absl::Status> left;
  b->membership->Leave(left.adder());
  world_.PassMs(100);
  EXPECT_EQ(left.size(), 1u);
  EXPECT_EQ(Seen(), "a:1");
  EXPECT_EQ(world_.server.leases(), 1u);
}

TEST_F(ClusterMembershipTest, ADeadNodeIsGoneAfterItsLeaseAndSuspectedAtOnceWhenItsConnectionBreaks) {
  auto a = world_.Start("a");
  auto b = world_.Start("b");
  world_.PassMs(100);
  const Incarnation life = a->incarnation;
  a.reset();
  observer_->membership->ReportDown("a", life, "connection reset");
  EXPECT_EQ(Seen(), "a:1? b:1");
  // Suspicions are one's own.
  EXPECT_EQ(MembershipWorld::Shown(*b->membership), "a:1 b:1");
  const auto took_ms = world_.Await(kTestLeaseMs + 1'000, [&] { return Seen() == "b:1"; });
  ASSERT_TRUE(took_ms.has_value());
  EXPECT_GT(*took_ms, 3'000);
}

TEST_F(ClusterMembershipTest, ANodeThatStartsAnewTakesItsPlaceBeforeTheOldLeaseEnds) {
  auto a = world_.Start("a", 1);
  world_.PassMs(100);
  observer_->membership->ReportDown("a", a->incarnation, "reset");
  a.reset();
  a = world_.Start("a", 2);
  ASSERT_TRUE(world_.Await(1'000, [&] { return Seen() == "a:2"; }).has_value());
  // The old lease ends, and takes nothing along.
  world_.PassMs(3 * kTestLeaseMs);
  EXPECT_EQ(Seen(), "a:2");
}

TEST_F(ClusterMembershipTest, OfTwoProcessesWithOneIdTheOlderLearnsThatItIsSuperseded) {
  auto old = world_.Start("a", 1);
  world_.PassMs(100);
  const auto fresh = world_.Start("a", 2);
  world_.PassMs(100);
  EXPECT_TRUE(old->membership->health().superseded);
  EXPECT_THAT(old->membership->health().causes, ::testing::Contains(::testing::HasSubstr("another process")));
  EXPECT_FALSE(fresh->membership->health().superseded);
  const auto older = world_.Start("a", 1);
  world_.PassMs(20'000);
  EXPECT_TRUE(older->membership->health().superseded);
  EXPECT_EQ(Seen(), "a:2");
  EXPECT_EQ(world_.server.leases(), 1u);
}

TEST_F(ClusterMembershipTest, RegistersAnewAfterItsLeaseWasLost) {
  const auto a = world_.Start("a");
  world_.PassMs(100);
  const LeasedKeyState before = a->membership->registration();
  world_.server.EndLease(before.lease);
  world_.PassMs(100);
  EXPECT_EQ(Seen(), "");
  ASSERT_TRUE(world_.Await(kTestLeaseMs, [&] { return Seen() == "a:1"; }).has_value());
  EXPECT_EQ(a->membership->registration().phase, Phase::kHeld);
  EXPECT_NE(a->membership->registration().lease, before.lease);
}

TEST_F(ClusterMembershipTest, WritesItsRecordAgainWhenSomebodyElseRemovedOrChangedIt) {
  const auto a = world_.Start("a");
  world_.PassMs(100);
  const std::string key = a->membership->registration().key;
  observer_->coordinator->Commit({{}, {Change::Delete(KeyRange::One(key))}}, [](const auto&) {});
  world_.PassMs(100);
  EXPECT_EQ(Seen(), "a:1");
  observer_->coordinator->Commit({{}, {Change::Put(key, "nonsense")}}, [](const auto&) {});
  world_.PassMs(100);
  EXPECT_EQ(Seen(), "a:1");
  EXPECT_EQ(world_.server.Items()[0].lease, a->membership->registration().lease);
}

TEST_F(ClusterMembershipTest, IsNotSureOfItsRegistrationBeforeOthersSeeItEnd) {
  const auto a = world_.Start("a");
  world_.PassMs(100);
  a->coordinator->SetCutOff(true);
  ASSERT_TRUE(world_.Await(kTestLeaseMs, [&] { return !a->membership->health().registered; }).has_value());
  EXPECT_EQ(Seen(), "a:1");
  ASSERT_TRUE(world_.Await(kTestLeaseMs, [&] { return Seen().empty(); }).has_value());
  a->coordinator->SetCutOff(false);
  ASSERT_TRUE(world_.Await(kTestLeaseMs, [&] { return Seen() == "a:1"; }).has_value());
}

TEST_F(ClusterMembershipTest, TheLastKnownStateOutlivesTheStoreAndHealthSaysSoAfterItsAge) {
  const auto a = world_.Start("a");
  world_.PassMs(100);
  world_.server.SetDown(true);
  world_.PassMs(60'000);
  EXPECT_EQ(Seen(), "a:1");
  EXPECT_FALSE(observer_->membership->health().up);
  EXPECT_FALSE(observer_->membership->health().stale);
  EXPECT_THAT(observer_->membership->health().causes, ::testing::IsEmpty());
  world_.PassMs(300'000);
  EXPECT_TRUE(observer_->membership->health().stale);
  EXPECT_THAT(observer_->membership->health().causes, ::testing::SizeIs(1));
  EXPECT_EQ(Seen(), "a:1");
  // What joins or dies meanwhile shows afterwards.
  const auto b = world_.Start("b");
  world_.PassMs(1'000);
  world_.server.SetDown(false);
  ASSERT_TRUE(world_.Await(10'000, [&] { return Seen() == "a:1 b:1"; }).has_value());
  EXPECT_THAT(observer_->membership->health().causes, ::testing::IsEmpty());
}

TEST_F(ClusterMembershipTest, AStoreRestoredFromABackupDropsNoLiveMember) {
  const auto a = world_.Start("a");
  auto old = world_.Start("old");
  world_.PassMs(100);
  const auto backup = world_.server.Backup();
  old.reset();
  auto b = world_.Start("b");
  world_.PassMs(10'000);
  ASSERT_EQ(Seen(), "a:1 b:1");
  bool dropped = false;
  observer_->membership->AddListener([&](const MemberViewPtr& view) {
    dropped |= view->Find("a") == nullptr || view->Find("b") == nullptr;
  });
  for (const bool new_cluster : {false, true}) {
    world_.server.Restore(backup, new_cluster);
    ASSERT_TRUE(world_.Await(kTestLeaseMs, [&] { return Seen() == "a:1 b:1 old:1"; }).has_value()) << Seen();
    ASSERT_TRUE(world_.Await(2 * kTestLeaseMs, [&] { return Seen() == "a:1 b:1"; }).has_value()) << Seen();
    world_.PassMs(2 * kTestGraceMs);
    EXPECT_EQ(Seen(), "a:1 b:1");
  }
  EXPECT_FALSE(dropped);
}

TEST_F(ClusterMembershipTest, AStoreThatComesBackEmptyDropsNoLiveMemberButTheDeadOnes) {
  const auto empty = world_.server.Backup();
  const auto a = world_.Start("a");
  auto dead = world_.Start("dead");
  world_.PassMs(100);
  dead.reset();
  world_.server.Restore(empty, /*new_cluster=*/true);
  world_.PassMs(kTestLeaseMs);
  EXPECT_EQ(Seen(), "a:1 dead:1~");
  world_.PassMs(kTestGraceMs);
  EXPECT_EQ(Seen(), "a:1");
}

// Random faults against the one truth: which lives of nodes there are.
class Schedule {
 public:
  explicit Schedule(uint64_t seed) : rng_(seed) {}

  void Run() {
    watcher_ = world_.Start("");
    watcher_->membership->AddListener([this](const MemberViewPtr& view) { CheckView(*view); });
    for (int step = 0; step < 60 && !::testing::Test::HasFailure(); ++step) {
      Step();
      world_.PassMs(static_cast<int64_t>(rng_.Below(3'000)));
      CheckSteady();
    }
    CheckHealed();
  }

 private:
  struct Life {
    std::unique_ptr<Node> node;
    bool cut_off = false;
    // Seen by the watcher, and nothing happened since that may cost a live node its lease.
    bool steady = false;
  };

  std::string Pick() { return std::string(1, static_cast<char>('a' + rng_.Below(4))); }

  void Step() {
    const std::string id = Pick();
    const auto found = lives_.find(id);
    const bool lives = found != lives_.end();
    switch (rng_.Below(14)) {
      case 0:
      case 1:
      case 2:  // starts, or starts anew at once
        if (lives) lives_.erase(found);
        lives_[id].node = world_.Start(id, ++boots_[id]);
        break;
      case 3:
        lives_.erase(id);
        break;
      case 4:
        if (!lives) break;
        found->second.steady = false;
        found->second.node->membership->SetState(NodeState::kDraining);
        world_.PassMs(static_cast<int64_t>(rng_.Below(1'000)));
        found->second.node->membership->Leave([](const absl::Status&) {});
        world_.PassMs(static_cast<int64_t>(rng_.Below(1'000)));
        lives_.erase(id);
        break;
      case 5:
        world_.server.SetDown(down_ = !down_);
        break;
      case 6:
        if (!lives) break;
        found->second.steady = false;
        found->second.cut_off = rng_.Below(2) == 0;
        found->second.node->coordinator->SetCutOff(found->second.cut_off);
        break;
      case 7:
        backup_ = world_.server.Backup();
        break;
      case 8:
        if (!backup_.has_value()) break;
        world_.server.Restore(*backup_, rng_.Below(2) == 0);
        restored_ = true;
        break;
      case 9:
        world_.server.Compact();
        break;
      case 10:
        world_.server.LoseAnswers(static_cast<int>(rng_.Below(3)));
        break;
      case 11:
        if (!lives) break;
        found->second.steady = false;
        world_.server.EndLease(found->second.node->membership->registration().lease);
        break;
      case 12:
        if (lives) found->second.node->membership->SetModels({{"ff", std::to_string(rng_.Below(100))}});
        break;
      default:
        world_.server.SetDelayMs(rng_.Below(2) == 0 ? 0 : static_cast<int64_t>(rng_.Below(500)));
    }
  }

  void CheckView(const MemberView& view) {
    EXPECT_GT(view.version, version_);
    version_ = view.version;
    for (const Member& member : view.members) {
      Incarnation& newest = newest_[member.node.id];
      if (!restored_) {
        EXPECT_GE(member.node.incarnation, newest) << member.node.id;
      }
      newest = std::max(newest, member.node.incarnation);
    }
  }

  // A node that lives and had no trouble of its own stays a member, whatever happens to the store.
  void CheckSteady() {
    const MemberViewPtr view = watcher_->membership->view();
    for (auto& [id, life] : lives_) {
      const Member* member = view->Find(id);
      const bool shown = member != nullptr && member->node.incarnation == life.node->incarnation;
      if (life.steady) {
        EXPECT_TRUE(shown) << id << ": " << MembershipWorld::Shown(*watcher_->membership);
      }
      life.steady |= shown && member->confirmed && !life.cut_off && IsStored(*life.node);
    }
  }

  // Whether the store has its record, under a lease that it is sure of.
  bool IsStored(const Node& node) {
    const LeasedKeyState registration = node.membership->registration();
    if (registration.phase != Phase::kHeld) return false;
    for (const KeyValue& item : world_.server.Items()) {
      if (item.key == registration.key && item.lease == registration.lease) return true;
    }
    return false;
  }

  void CheckHealed() {
    world_.server.SetDown(false);
    world_.server.SetDelayMs(0);
    world_.server.LoseAnswers(0);
    std::string truth;
    for (const auto& [id, life] : lives_) {
      life.node->coordinator->SetCutOff(false);
      truth += (truth.empty() ? "" : " ") + id + ":" + std::to_string(life.node->incarnation.boot);
    }
    world_.PassMs(4 * kTestGraceMs);
    EXPECT_EQ(MembershipWorld::Shown(*watcher_->membership), truth);
    for (const auto& [id, life] : lives_) {
      EXPECT_EQ(MembershipWorld::Shown(*life.node->membership), truth) << id;
      EXPECT_TRUE(life.node->membership->health().registered) << id;
    }
    EXPECT_EQ(world_.server.Items().size(), lives_.size());
  }

  Rng rng_;
  MembershipWorld world_;
  std::unique_ptr<Node> watcher_;
  std::map<std::string, Life> lives_;
  std::map<std::string, uint64_t> boots_;
  std::map<std::string, Incarnation> newest_;
  std::optional<FakeCoordinationServer::State> backup_;
  uint64_t version_ = 0;
  bool down_ = false;
  bool restored_ = false;
};

TEST(ClusterMembershipScheduleTest, NoLiveMemberIsLostAndAllAgreeInTheEnd) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule(seed).Run();
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace epic::testing
