#include "common/coordination/member_table.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace epic {
namespace {

constexpr int64_t kLeaseMs = 5'000;
constexpr int64_t kGraceMs = 15'000;
constexpr int64_t kMarginMs = 1'000;

class MemberTableTest : public ::testing::Test {
 protected:
  static KeyValue Record(const std::string& id, uint64_t boot, Revision revision,
                         NodeState state = NodeState::kServing) {
    NodeInfo node;
    node.kind = NodeKind::kKvStore;
    node.id = id;
    node.incarnation = {boot, 1};
    node.state = state;
    node.lease_ms = kLeaseMs;
    return {"m/" + id, EncodeMember(node), revision, revision, 1};
  }
  void Put(const KeyValue& item) {
    WatchUpdate update;
    update.changes.push_back({true, item});
    update.revision = item.modified;
    table_.Changed(update, now_ms_);
  }
  void Delete(const std::string& id, Revision revision) {
    WatchUpdate update;
    update.changes.push_back({false, {"m/" + id, "", 0, revision, 0}});
    update.revision = revision;
    table_.Changed(update, now_ms_);
  }
  void PassMs(int64_t ms) { table_.Tick(now_ms_ += ms); }
  // id:boot, with ? for suspected and ~ for kept.
  std::string Shown() {
    std::string shown;
    for (const Member& member : table_.view()->members) {
      shown += (shown.empty() ? "" : " ") + member.node.id + ":" +
               std::to_string(member.node.incarnation.boot) + (member.suspected ? "?" : "") +
               (member.confirmed ? "" : "~");
    }
    return shown;
  }

  MemberTable table_{
      {.prefix = "m/", .grace_ms = kGraceMs, .outage_ms = 2'500, .suspect_margin_ms = kMarginMs}};
  int64_t now_ms_ = 1'000'000;
};

TEST_F(MemberTableTest, ShowsWhatTheStoreSaysSortedAndWithItsRevision) {
  table_.Listed({{Record("b", 1, 5), Record("a", 2, 7)}, 9}, false, now_ms_);
  EXPECT_EQ(Shown(), "a:2 b:1");
  const auto view = table_.view();
  EXPECT_EQ(view->revision, 9);
  EXPECT_EQ(table_.view(), view);
  Put(Record("c", 1, 10, NodeState::kJoining));
  Delete("a", 11);
  EXPECT_EQ(Shown(), "b:1 c:1");
  EXPECT_GT(table_.view()->version, view->version);
  EXPECT_EQ(view->members.size(), 2u);
  EXPECT_EQ(table_.view()->Find("a"), nullptr);
  EXPECT_TRUE(table_.view()->Find("b")->serves());
  EXPECT_FALSE(table_.view()->Find("c")->serves());
  EXPECT_EQ(table_.view()->OfKind(NodeKind::kKvStore).size(), 2u);
  EXPECT_EQ(table_.view()->OfKind(NodeKind::kRouter).size(), 0u);
}

TEST_F(MemberTableTest, CountsAndPassesOverRecordsThatItCannotRead) {
  KeyValue other = Record("b", 1, 2);
  other.key = "m/not-b";
  table_.Listed({{Record("a", 1, 1), {"m/x", "{", 1, 1, 1}, other}, 2}, false, now_ms_);
  EXPECT_EQ(Shown(), "a:1");
  EXPECT_EQ(table_.bad_records(), 2u);
}

TEST_F(MemberTableTest, SuspectsAtOnceTheLifeThatWasReportedAndNoOther) {
  table_.Listed({{Record("a", 5, 1), Record("b", 5, 1)}, 1}, false, now_ms_);
  table_.ReportDown("a", {4, 1}, "reset", now_ms_);
  table_.ReportDown("x", {5, 1}, "reset", now_ms_);
  EXPECT_EQ(Shown(), "a:5 b:5");
  table_.ReportDown("a", {5, 1}, "connection reset", now_ms_);
  EXPECT_EQ(Shown(), "a:5? b:5");
  EXPECT_EQ(table_.view()->Find("a")->why, "connection reset");
  EXPECT_FALSE(table_.view()->Find("a")->serves());
}

TEST_F(MemberTableTest, SuspectsNoMoreWhatShowsUpAgain) {
  const auto suspect = [&] {
    table_.Listed({{Record("a", 5, 1)}, 100}, false, now_ms_);
    table_.ReportDown("a", {5, 1}, "reset", now_ms_);
    ASSERT_EQ(Shown(), "a:5?");
  };
  suspect();
  Put(Record("a", 6, 101));
  EXPECT_EQ(Shown(), "a:6");
  suspect();
  Put(Record("a", 5, 102));
  EXPECT_EQ(Shown(), "a:5");
  suspect();
  table_.ReportUp("a", {4, 1});
  EXPECT_EQ(Shown(), "a:5?");
  table_.ReportUp("a", {5, 1});
  EXPECT_EQ(Shown(), "a:5");
}

TEST_F(MemberTableTest, TriesAgainWhatOutlivesTheReportByALease) {
  table_.Listed({{Record("a", 5, 1)}, 1}, false, now_ms_);
  table_.ReportDown("a", {5, 1}, "reset", now_ms_);
  PassMs(kLeaseMs + kMarginMs - 1);
  EXPECT_EQ(Shown(), "a:5?");
  PassMs(1);
  EXPECT_EQ(Shown(), "a:5");
  // Not while the store is away: nobody knows whether the lease was renewed.
  table_.ReportDown("a", {5, 1}, "reset", now_ms_);
  table_.SetUp(false, now_ms_);
  PassMs(10 * kLeaseMs);
  EXPECT_EQ(Shown(), "a:5?");
  table_.SetUp(true, now_ms_);
  PassMs(kLeaseMs + kMarginMs - 1);
  EXPECT_EQ(Shown(), "a:5?");
  PassMs(1);
  EXPECT_EQ(Shown(), "a:5");
}

TEST_F(MemberTableTest, ARelistingThatMissesAMemberDropsIt) {
  table_.Listed({{Record("a", 1, 1), Record("b", 1, 1)}, 1}, false, now_ms_);
  table_.Listed({{Record("b", 1, 1)}, 8}, false, now_ms_);
  EXPECT_EQ(Shown(), "b:1");
}

TEST_F(MemberTableTest, KeepsWhatARestoredStoreHasLostUntilTheGraceIsOver) {
  table_.Listed({{Record("a", 1, 1), Record("b", 1, 9), Record("c", 1, 9)}, 9}, false, now_ms_);
  table_.Listed({{Record("a", 1, 1)}, 3}, true, now_ms_);
  EXPECT_EQ(Shown(), "a:1 b:1~ c:1~");
  EXPECT_TRUE(table_.view()->Find("b")->serves());
  Put(Record("b", 1, 4));
  EXPECT_EQ(Shown(), "a:1 b:1 c:1~");
  PassMs(kGraceMs - 1);
  EXPECT_EQ(Shown(), "a:1 b:1 c:1~");
  PassMs(1);
  EXPECT_EQ(Shown(), "a:1 b:1");
}

TEST_F(MemberTableTest, DropsAKeptMemberThatIsReportedDown) {
  table_.Listed({{Record("a", 1, 1)}, 9}, false, now_ms_);
  table_.Listed({{}, 3}, true, now_ms_);
  ASSERT_EQ(Shown(), "a:1~");
  table_.ReportDown("a", {1, 1}, "refused", now_ms_);
  EXPECT_EQ(Shown(), "");
}

TEST_F(MemberTableTest, PutsNoFormerLifeBeforeTheOneItKnows) {
  table_.Listed({{Record("a", 7, 8)}, 9}, false, now_ms_);
  table_.Listed({{Record("a", 6, 2), Record("old", 1, 2)}, 3}, true, now_ms_);
  EXPECT_EQ(Shown(), "a:7~ old:1");
  // The lease of a former life runs out again: it does not take the present one along, nor is it kept.
  Delete("a", 4);
  Delete("old", 5);
  EXPECT_EQ(Shown(), "a:7~");
  Put(Record("a", 7, 6));
  EXPECT_EQ(Shown(), "a:7");
  PassMs(2 * kGraceMs);
  EXPECT_EQ(Shown(), "a:7");
}

TEST_F(MemberTableTest, KeepsWhatEndsAroundAnOutageOfTheStoreButNotWhatLeft) {
  table_.Listed({{Record("a", 1, 1), Record("b", 1, 1, NodeState::kDraining), Record("c", 1, 1)}, 1}, false,
                now_ms_);
  table_.SetUp(false, now_ms_);
  PassMs(10'000);
  table_.SetUp(true, now_ms_);
  Delete("a", 2);
  Delete("b", 3);
  EXPECT_EQ(Shown(), "a:1~ c:1");
  PassMs(kGraceMs);
  EXPECT_EQ(Shown(), "c:1");
  Delete("c", 4);
  EXPECT_EQ(Shown(), "");
}

TEST_F(MemberTableTest, AnOutageTooShortToCostALeaseExcusesNobody) {
  table_.Listed({{Record("a", 1, 1)}, 1}, false, now_ms_);
  table_.SetUp(false, now_ms_);
  PassMs(1'000);
  table_.SetUp(true, now_ms_);
  Delete("a", 2);
  EXPECT_EQ(Shown(), "");
}

TEST_F(MemberTableTest, KeepsEverythingWhileTheStoreIsAway) {
  table_.Listed({{Record("a", 1, 1)}, 9}, false, now_ms_);
  table_.Listed({{}, 3}, true, now_ms_);
  table_.SetUp(false, now_ms_);
  PassMs(100 * kGraceMs);
  EXPECT_EQ(Shown(), "a:1~");
}

}  // namespace
}  // namespace epic
