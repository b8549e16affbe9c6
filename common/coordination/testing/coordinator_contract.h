// What every Coordinator must do, as one suite of tests: for the fake, and for etcd. A test file that
// includes this instantiates CoordinatorContractTest with the makers of its worlds. Tests only.
#ifndef EPIC_COMMON_COORDINATION_TESTING_COORDINATOR_CONTRACT_H_
#define EPIC_COMMON_COORDINATION_TESTING_COORDINATOR_CONTRACT_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/coordination/coordinator.h"
#include "common/coordination/testing/calls.h"
#include "common/coordination/testing/coordination_world.h"
#include "common/testing/status_matchers.h"

namespace epic::testing {

// Null: cannot be had here, the test is skipped.
using WorldMaker = std::function<std::unique_ptr<CoordinationWorld>()>;

class CoordinatorContractTest : public ::testing::TestWithParam<WorldMaker> {
 protected:
  void SetUp() override {
    world_ = GetParam()();
    if (world_ == nullptr) GTEST_SKIP() << "etcd is not installed (package etcd-server)";
    coordinator_ = world_->NewCoordinator();
  }

  template <typename T>
  T AwaitOne(const Gathered<T>& answers) {
    EXPECT_TRUE(world_->Await([&] { return answers.size() > 0; }));
    return answers.size() > 0 ? answers.all()[0] : T(absl::UnknownError("no answer"));
  }
  absl::StatusOr<Listing> List(KeyRange range, Revision at = 0) {
    Gathered<absl::StatusOr<Listing>> answers;
    coordinator_->List(std::move(range), at, answers.adder());
    return AwaitOne(answers);
  }
  absl::StatusOr<TransactionResult> Commit(Transaction transaction) {
    Gathered<absl::StatusOr<TransactionResult>> answers;
    coordinator_->Commit(std::move(transaction), answers.adder());
    return AwaitOne(answers);
  }
  // The revision of the put.
  Revision Put(std::string_view key, std::string_view value, LeaseId lease = 0) {
    const auto result = Commit({{}, {Change::Put(key, value, lease)}});
    EXPECT_OK(result);
    return result.ok() ? result->revision : 0;
  }
  Revision Delete(KeyRange range) {
    const auto result = Commit({{}, {Change::Delete(std::move(range))}});
    EXPECT_OK(result);
    return result.ok() ? result->revision : 0;
  }
  absl::StatusOr<Lease> Grant(Coordinator* coordinator, const Gathered<LeaseState>& states) {
    Gathered<absl::StatusOr<Lease>> answers;
    coordinator->GrantLease(world_->LeaseMs(), states.adder(), answers.adder());
    return AwaitOne(answers);
  }
  std::vector<std::string> Keys(const KeyRange& range) {
    std::vector<std::string> keys;
    const auto listing = List(range);
    EXPECT_OK(listing);
    if (!listing.ok()) return keys;
    for (const KeyValue& item : listing->items) keys.push_back(item.key);
    return keys;
  }

  std::unique_ptr<CoordinationWorld> world_;
  Coordinator* coordinator_ = nullptr;
};

TEST_P(CoordinatorContractTest, ListsWhatWasPutInTheOrderOfKeysAndAtOneRevision) {
  Put("a/2", "two");
  const Revision first = Put("a/1", "one");
  Put("b", "other");
  const Revision last = Put("a/1", std::string("\0uno\xff", 5));
  ASSERT_OK_AND_ASSIGN(const Listing now, List(KeyRange::Prefix("a/")));
  EXPECT_EQ(now.revision, last);
  ASSERT_EQ(now.items.size(), 2u);
  EXPECT_EQ(now.items[0], (KeyValue{"a/1", std::string("\0uno\xff", 5), first, last, 0}));
  EXPECT_EQ(now.items[1].key, "a/2");
  ASSERT_OK_AND_ASSIGN(const Listing before, List(KeyRange::Prefix("a/"), first));
  EXPECT_EQ(before.items[0].value, "one");
  EXPECT_EQ(before.revision, first);
  EXPECT_THAT(Keys(KeyRange::One("a/")), ::testing::IsEmpty());
  EXPECT_THAT(Keys(KeyRange::One("a/2")), ::testing::ElementsAre("a/2"));
  EXPECT_THAT(Keys(KeyRange::Prefix("")), ::testing::ElementsAre("a/1", "a/2", "b"));
  EXPECT_THAT(List(KeyRange::Prefix("a/"), last + 1000), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_P(CoordinatorContractTest, KeepsPrefixesApartWhoseLastByteIsTheLargest) {
  Put(std::string("p\xff", 2), "1");
  Put(std::string("p\xff\xff", 3), "2");
  Put("q", "3");
  EXPECT_EQ(Keys(KeyRange::Prefix(std::string("p\xff", 2))).size(), 2u);
  EXPECT_EQ(Keys(KeyRange::Prefix(std::string("\xff", 1))).size(), 0u);
}

TEST_P(CoordinatorContractTest, AppliesATransactionOnlyIfAllGuardsHoldAndSaysWhatItFound) {
  const Revision made = Put("a", "1");
  const Revision changed = Put("a", "2");
  ASSERT_OK_AND_ASSIGN(
      TransactionResult refused,
      Commit({{Guard::ModifiedAt("a", changed), Guard::Absent("b"), Guard::ModifiedAt("a", made)},
              {Change::Put("b", "x")}}));
  EXPECT_FALSE(refused.applied);
  EXPECT_EQ(refused.revision, changed);
  ASSERT_EQ(refused.found.size(), 3u);
  EXPECT_EQ(refused.found[0], (KeyValue{"a", "2", made, changed, 0}));
  EXPECT_EQ(refused.found[1], std::nullopt);
  ASSERT_OK_AND_ASSIGN(TransactionResult applied,
                       Commit({{Guard::CreatedAt("a", made), Guard::Absent("b"), Guard::ValueIs("a", "2")},
                               {Change::Put("b", "x"), Change::Delete(KeyRange::One("a"))}}));
  EXPECT_TRUE(applied.applied);
  EXPECT_EQ(applied.revision, changed + 1);
  EXPECT_THAT(Keys(KeyRange::Prefix("")), ::testing::ElementsAre("b"));
  ASSERT_OK_AND_ASSIGN(refused, Commit({{Guard::ValueIs("a", "")}, {Change::Put("c", "x")}}));
  EXPECT_FALSE(refused.applied);
}

TEST_P(CoordinatorContractTest, LetsOneOfManyWinAGuardedPut) {
  Gathered<absl::StatusOr<TransactionResult>> answers;
  for (int i = 0; i < 20; ++i) {
    Coordinator* one = i % 2 == 0 ? coordinator_ : (i == 1 ? world_->NewCoordinator() : coordinator_);
    one->Commit({{Guard::Absent("lock")}, {Change::Put("lock", std::to_string(i))}}, answers.adder());
  }
  ASSERT_TRUE(world_->Await([&] { return answers.size() == 20; }));
  int applied = 0;
  for (const auto& answer : answers.all()) {
    ASSERT_OK(answer);
    applied += answer->applied ? 1 : 0;
  }
  EXPECT_EQ(applied, 1);
}

TEST_P(CoordinatorContractTest, RefusesWhatIsOverALimit) {
  const std::string large(CoordinationLimits::kValueBytes + 1, 'x');
  EXPECT_THAT(Commit({{}, {Change::Put("a", large)}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Commit({{}, {Change::Put("", "x")}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Commit({{}, {}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Commit({{}, {Change::Put("a", "1"), Change::Put("a", "2")}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Commit({{}, {Change::Put("a/1", "1"), Change::Delete(KeyRange::Prefix("a"))}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(List(KeyRange::One("")), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(coordinator_->Watch(KeyRange::One("a"), 0, [](const WatchUpdate&) {}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Commit({{}, {Change::Put("a", large.substr(1))}}));
}

TEST_P(CoordinatorContractTest, AWatchTellsEveryChangeFromItsRevisionOnInOrder) {
  const Revision before = Put("w/1", "old");
  const Revision from = Put("w/2", "x");
  Watched watched;
  ASSERT_OK(coordinator_->Watch(KeyRange::Prefix("w/"), from, watched.listener()));
  Put("other", "x");
  ASSERT_OK(Commit({{}, {Change::Put("w/1", "new"), Change::Put("w/3", "y")}}));
  const Revision gone = Delete(KeyRange::Prefix("w/2"));
  ASSERT_TRUE(world_->Await([&] { return watched.changes().size() == 4; }));
  const std::vector<KeyChange> changes = watched.changes();
  EXPECT_EQ(changes[0].item, (KeyValue{"w/2", "x", from, from, 0}));
  EXPECT_EQ(changes[1].item.key, "w/1");
  EXPECT_EQ(changes[1].item.created, before);
  EXPECT_EQ(changes[1].item.modified, changes[2].item.modified);
  EXPECT_FALSE(changes[3].is_put);
  EXPECT_EQ(changes[3].item.key, "w/2");
  EXPECT_EQ(changes[3].item.modified, gone);
  EXPECT_EQ(watched.end(), std::nullopt);
}

TEST_P(CoordinatorContractTest, AnEndedWatchIsToldNothingMore) {
  const Revision from = Put("w", "0") + 1;
  Watched ended, other;
  ASSERT_OK_AND_ASSIGN(const WatchId watch, coordinator_->Watch(KeyRange::One("w"), from, ended.listener()));
  ASSERT_OK(coordinator_->Watch(KeyRange::One("w"), from, other.listener()));
  Put("w", "1");
  ASSERT_TRUE(world_->Await([&] { return ended.changes().size() == 1 && other.changes().size() == 1; }));
  coordinator_->Unwatch(watch);
  coordinator_->Unwatch(watch + 1000);
  Put("w", "2");
  ASSERT_TRUE(world_->Await([&] { return other.changes().size() == 2; }));
  EXPECT_EQ(ended.changes().size(), 1u);
}

TEST_P(CoordinatorContractTest, AWatchOfForgottenChangesIsToldToListAgain) {
  const Revision first = Put("w", "1");
  for (int i = 0; i < 5; ++i) Put("w", "2");
  const Revision last = Put("w", "3");
  world_->Compact(last);
  Watched watched;
  ASSERT_OK(coordinator_->Watch(KeyRange::One("w"), first, watched.listener()));
  ASSERT_TRUE(world_->Await([&] { return watched.end().has_value(); }));
  EXPECT_EQ(watched.end(), WatchUpdate::Kind::kCompacted);
  EXPECT_THAT(List(KeyRange::One("w"), first), StatusIs(absl::StatusCode::kOutOfRange));
  Watched again;
  ASSERT_OK(coordinator_->Watch(KeyRange::One("w"), last + 1, again.listener()));
  Put("w", "4");
  ASSERT_TRUE(world_->Await([&] { return again.changes().size() == 1; }));
}

TEST_P(CoordinatorContractTest, ALeaseLivesOnWhileItIsKeptAndTakesItsKeysAlong) {
  const Gathered<LeaseState> states;
  ASSERT_OK_AND_ASSIGN(const Lease lease, Grant(coordinator_, states));
  EXPECT_GE(lease.ttl_ms, world_->LeaseMs());
  Put("l/1", "x", lease.id);
  Put("l/2", "x", lease.id);
  Put("l/3", "x");
  // Another lease that nobody keeps ends meanwhile; that one does not.
  const Gathered<LeaseState> others;
  ASSERT_OK_AND_ASSIGN(const Lease other, Grant(coordinator_, others));
  Put("m", "x", other.id);
  coordinator_->AbandonLease(other.id);
  ASSERT_TRUE(world_->Await([&] { return Keys(KeyRange::One("m")).empty(); }));
  EXPECT_EQ(Keys(KeyRange::Prefix("l/")).size(), 3u);
  EXPECT_EQ(others.size(), 0u);
  Gathered<absl::Status> revoked;
  coordinator_->RevokeLease(lease.id, revoked.adder());
  EXPECT_OK(AwaitOne(revoked));
  EXPECT_THAT(Keys(KeyRange::Prefix("l/")), ::testing::ElementsAre("l/3"));
  EXPECT_EQ(states.size(), 0u);
  Gathered<absl::Status> again;
  coordinator_->RevokeLease(lease.id, again.adder());
  EXPECT_OK(AwaitOne(again));
}

TEST_P(CoordinatorContractTest, SaysSoWhenALeaseWasEndedByAnother) {
  const Gathered<LeaseState> states;
  ASSERT_OK_AND_ASSIGN(const Lease lease, Grant(coordinator_, states));
  Put("l", "x", lease.id);
  Gathered<absl::Status> revoked;
  world_->NewCoordinator()->RevokeLease(lease.id, revoked.adder());
  EXPECT_OK(AwaitOne(revoked));
  ASSERT_TRUE(world_->Await([&] { return states.size() > 0; }));
  EXPECT_THAT(states.all(), ::testing::ElementsAre(LeaseState::kLost));
  EXPECT_THAT(Commit({{}, {Change::Put("l", "x", lease.id)}}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(Keys(KeyRange::One("l")), ::testing::IsEmpty());
  // Guards come first: what is not applied needs no lease.
  ASSERT_OK_AND_ASSIGN(const TransactionResult refused,
                       Commit({{Guard::ValueIs("l", "y")}, {Change::Put("l", "x", lease.id)}}));
  EXPECT_FALSE(refused.applied);
}

TEST_P(CoordinatorContractTest, TellsItsHealth) {
  const Revision last = Put("a", "1");
  EXPECT_TRUE(world_->Await([&] { return coordinator_->health().up; }));
  const CoordinationHealth health = coordinator_->health();
  EXPECT_GE(health.revision, last);
  EXPECT_NE(health.cluster, 0u);
  EXPECT_NE(health.endpoint, "");
  EXPECT_EQ(health.fault, "");
  EXPECT_EQ(health.histories_lost, 0u);
}

TEST_P(CoordinatorContractTest, StopAnswersWhatWaitsAndTellsNothingAfterwards) {
  const Revision from = Put("w", "0") + 1;
  Coordinator* stopping = world_->NewCoordinator();
  Watched watched;
  ASSERT_OK(stopping->Watch(KeyRange::One("w"), from, watched.listener()));
  Gathered<absl::StatusOr<TransactionResult>> answers;
  for (int i = 0; i < 100; ++i) stopping->Commit({{}, {Change::Put("x", "y")}}, answers.adder());
  stopping->Stop();
  EXPECT_EQ(answers.size(), 100u);
  for (const auto& answer : answers.all()) {
    if (!answer.ok()) {
      EXPECT_THAT(answer, StatusIs(absl::StatusCode::kCancelled));
    }
  }
  const size_t told = watched.changes().size();
  stopping->Stop();
  stopping->List(KeyRange::One("w"), 0, [](const absl::StatusOr<Listing>& answer) {
    EXPECT_THAT(answer, StatusIs(absl::StatusCode::kCancelled));
  });
  EXPECT_THAT(stopping->Watch(KeyRange::One("w"), from, watched.listener()),
              StatusIs(absl::StatusCode::kCancelled));
  Put("w", "1");
  Watched other;
  ASSERT_OK(coordinator_->Watch(KeyRange::One("w"), from, other.listener()));
  ASSERT_TRUE(world_->Await([&] { return other.changes().size() == 1; }));
  EXPECT_EQ(watched.changes().size(), told);
}

TEST_P(CoordinatorContractTest, ACallbackMayCallOn) {
  Gathered<absl::StatusOr<Listing>> last;
  coordinator_->Commit({{}, {Change::Put("a", "1")}}, [&](const absl::StatusOr<TransactionResult>& put) {
    EXPECT_OK(put);
    coordinator_->List(KeyRange::One("a"), 0, last.adder());
  });
  ASSERT_OK_AND_ASSIGN(const Listing listing, AwaitOne(last));
  EXPECT_EQ(listing.items.size(), 1u);
}

}  // namespace epic::testing

#endif  // EPIC_COMMON_COORDINATION_TESTING_COORDINATOR_CONTRACT_H_
