// Real etcd processes that are killed, stopped, brought back and restored, and what a coordinator makes of
// it.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/coordination/etcd/etcd_coordinator.h"
#include "common/coordination/etcd/testing/etcd_processes.h"
#include "common/coordination/etcd/testing/etcd_world.h"
#include "common/coordination/testing/calls.h"
#include "common/rpc/credentials.h"
#include "common/rpc/testing/certificates.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"

namespace epic::testing {
namespace {

class EtcdFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EtcdProcesses::Installed()) GTEST_SKIP() << "etcd is not installed (package etcd-server)";
  }
  void StartEtcd(size_t members) {
    etcd_ = std::make_unique<EtcdProcesses>(members);
    world_ = std::make_unique<EtcdWorld>(etcd_.get());
    coordinator_ = world_->NewEtcd();
  }

  absl::StatusOr<TransactionResult> Commit(Transaction transaction) {
    Gathered<absl::StatusOr<TransactionResult>> answers;
    coordinator_->Commit(std::move(transaction), answers.adder());
    EXPECT_TRUE(world_->Await([&] { return answers.size() == 1; }));
    return answers.all()[0];
  }
  // As often as it takes; how long that took in ms.
  int64_t PutUntilOk(std::string_view key, LeaseId lease = 0) {
    const int64_t begin_ns = SystemClock::Get()->SteadyNs();
    const auto put = [&] { return Commit({{}, {Change::Put(key, "x", lease)}}).ok(); };
    EXPECT_TRUE(AwaitReal(60'000, put));
    return (SystemClock::Get()->SteadyNs() - begin_ns) / 1'000'000;
  }
  std::vector<std::string> Keys() {
    Gathered<absl::StatusOr<Listing>> answers;
    coordinator_->List(KeyRange::Prefix(""), 0, answers.adder());
    EXPECT_TRUE(world_->Await([&] { return answers.size() == 1; }));
    std::vector<std::string> keys;
    const absl::StatusOr<Listing> listing = answers.all()[0];
    if (!listing.ok()) return keys;
    for (const KeyValue& item : listing->items) keys.push_back(item.key);
    return keys;
  }
  Lease Grant(int64_t ttl_ms) {
    Gathered<absl::StatusOr<Lease>> answers;
    coordinator_->GrantLease(ttl_ms, states_.adder(), answers.adder());
    EXPECT_TRUE(world_->Await([&] { return answers.size() == 1; }));
    EXPECT_OK(answers.all()[0]);
    return answers.all()[0].ok() ? *answers.all()[0] : Lease{};
  }
  // The member that the coordinator uses.
  size_t Used() const {
    size_t used = 0;
    for (size_t i = 0; i < etcd_->size(); ++i) {
      if (etcd_->address(i) == coordinator_->health().endpoint) used = i;
    }
    return used;
  }
  // What must hold of a lease, a watch and calls while one of three members is `fault`ed.
  void GoesOnWithoutOne(const std::function<void(size_t)>& fault);

  std::unique_ptr<EtcdProcesses> etcd_;
  std::unique_ptr<EtcdWorld> world_;
  EtcdCoordinator* coordinator_ = nullptr;
  Gathered<LeaseState> states_;
  Watched watched_;
};

void EtcdFaultsTest::GoesOnWithoutOne(const std::function<void(size_t)>& fault) {
  StartEtcd(3);
  const Lease lease = Grant(10'000);
  PutUntilOk("mine", lease.id);
  ASSERT_OK_AND_ASSIGN(const TransactionResult put, Commit({{}, {Change::Put("w", "0")}}));
  ASSERT_OK(coordinator_->Watch(KeyRange::Prefix("w"), put.revision + 1, watched_.listener()));
  PutUntilOk("w1");
  ASSERT_TRUE(world_->Await([&] { return watched_.changes().size() == 1; }));
  const size_t used = Used();
  fault(used);
  // Nobody calls: the probe finds it, and the watch and the lease move.
  ASSERT_TRUE(world_->Await([&] { return Used() != used && coordinator_->health().up; }));
  PutUntilOk("w2");
  ASSERT_TRUE(world_->Await([&] {
    const auto changes = watched_.changes();
    return !changes.empty() && changes.back().item.key == "w2";
  }));
  EXPECT_EQ(watched_.end(), std::nullopt);
  // Longer than the lease, which must have been renewed elsewhere.
  const int64_t until_ns = SystemClock::Get()->SteadyNs() + (lease.ttl_ms + 2'000) * 1'000'000;
  ASSERT_TRUE(world_->Await([&] { return SystemClock::Get()->SteadyNs() > until_ns; }));
  EXPECT_THAT(Keys(), ::testing::Contains("mine"));
  EXPECT_THAT(states_.all(), ::testing::Not(::testing::Contains(LeaseState::kLost)));
  EXPECT_GT(coordinator_->health().failovers, 0u);
  EXPECT_EQ(coordinator_->health().histories_lost, 0u);
}

TEST_F(EtcdFaultsTest, GoesOnWhenOneOfThreeMembersIsKilled) {
  GoesOnWithoutOne([&](size_t member) { etcd_->Kill(member); });
}

TEST_F(EtcdFaultsTest, GoesOnWhenOneOfThreeMembersHangs) {
  GoesOnWithoutOne([&](size_t member) { etcd_->Signal(member, SIGSTOP); });
}

TEST_F(EtcdFaultsTest, WaitsWhileAllOfItIsStoppedAndGoesOnAfterwards) {
  StartEtcd(3);
  const Lease lease = Grant(3'000);
  PutUntilOk("mine", lease.id);
  ASSERT_OK_AND_ASSIGN(const TransactionResult put, Commit({{}, {Change::Put("w", "0")}}));
  ASSERT_OK(coordinator_->Watch(KeyRange::Prefix("w"), put.revision + 1, watched_.listener()));
  etcd_->KillAll();
  ASSERT_TRUE(world_->Await([&] { return states_.size() == 1 && !coordinator_->health().up; }));
  EXPECT_EQ(states_.all()[0], LeaseState::kUncertain);
  EXPECT_NE(coordinator_->health().fault, "");
  EXPECT_THAT(Commit({{}, {Change::Put("w", "1")}}),
              ::testing::AnyOf(StatusIs(absl::StatusCode::kUnavailable),
                               StatusIs(absl::StatusCode::kDeadlineExceeded)));
  etcd_->StartAll();
  PutUntilOk("w2");
  ASSERT_TRUE(world_->Await([&] { return watched_.changes().size() == 1 && states_.size() == 2; }));
  EXPECT_EQ(states_.all()[1], LeaseState::kHeld);
  EXPECT_THAT(Keys(), ::testing::Contains("mine"));
  EXPECT_TRUE(coordinator_->health().up);
  EXPECT_EQ(coordinator_->health().histories_lost, 0u);
}

TEST_F(EtcdFaultsTest, NoticesThatTheStoreWasRestoredFromABackup) {
  StartEtcd(1);
  PutUntilOk("old");
  etcd_->Kill(0);
  etcd_->SaveData(0, "backup");
  etcd_->Start(0);
  const Lease lease = Grant(3'000);
  PutUntilOk("new", lease.id);
  for (int i = 0; i < 10; ++i) PutUntilOk("newer");
  ASSERT_OK_AND_ASSIGN(const TransactionResult put, Commit({{}, {Change::Put("w", "0")}}));
  ASSERT_OK(coordinator_->Watch(KeyRange::Prefix(""), put.revision + 1, watched_.listener()));
  etcd_->Kill(0);
  etcd_->RestoreData(0, "backup");
  etcd_->Start(0);
  ASSERT_TRUE(world_->Await([&] { return watched_.end().has_value(); }));
  EXPECT_EQ(watched_.end(), WatchUpdate::Kind::kHistoryChanged);
  EXPECT_EQ(coordinator_->health().histories_lost, 1u);
  EXPECT_LT(coordinator_->health().revision, put.revision);
  EXPECT_THAT(Keys(), ::testing::ElementsAre("old"));
  ASSERT_TRUE(world_->Await([&] {
    const auto states = states_.all();
    return !states.empty() && states.back() == LeaseState::kLost;
  }));
}

TEST_F(EtcdFaultsTest, SaysWhatItCannotReachByTheDeadline) {
  StartEtcd(1);
  EtcdOptions options;
  options.endpoints = {"127.0.0.1:1", "127.0.0.1:2"};
  options.call_ms = 500;
  coordinator_ = world_->NewEtcd(options);
  Gathered<absl::StatusOr<Listing>> answers;
  coordinator_->List(KeyRange::Prefix(""), 0, answers.adder());
  ASSERT_TRUE(AwaitReal(5'000, [&] { return answers.size() == 1; }));
  EXPECT_THAT(answers.all()[0], StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("127.0.0.1:")));
  EXPECT_FALSE(coordinator_->health().up);
}

TEST_F(EtcdFaultsTest, SpeaksMutualTls) {
  const TempDir folder;
  const Authority authority("test");
  const Identity identity = authority.Issue();
  const auto path = [&](const std::string& name) { return folder.path() + "/" + name; };
  WriteFile(path("ca.pem"), authority.pem());
  WriteFile(path("cert.pem"), identity.cert_pem);
  WriteFile(path("key.pem"), identity.key_pem);
  EtcdProcesses etcd(1, {path("cert.pem"), path("key.pem"), path("ca.pem")});
  TimerThread timers(SystemClock::Get());
  EtcdOptions options;
  options.endpoints = etcd.addresses();
  options.timers = &timers;
  CredentialsOptions credentials;
  credentials.paths = {path("cert.pem"), path("key.pem"), path("ca.pem")};
  ASSERT_OK_AND_ASSIGN(options.credentials, Credentials::Load(credentials));
  {
    EtcdCoordinator known(options);
    EXPECT_TRUE(AwaitReal(30'000, [&] { return known.health().up; }));
    options.credentials = nullptr;
    EtcdCoordinator plain(options);
    EXPECT_TRUE(AwaitReal(30'000, [&] { return plain.health().fault != "not reached yet"; }));
    EXPECT_FALSE(plain.health().up);
    EXPECT_TRUE(known.health().up);
  }
}

}  // namespace
}  // namespace epic::testing
