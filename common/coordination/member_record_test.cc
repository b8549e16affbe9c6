#include "common/coordination/member_record.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/random.h"
#include "common/testing/status_matchers.h"

namespace epic {
namespace {

using testing::StatusIs;

NodeInfo Sample() {
  NodeInfo node;
  node.kind = NodeKind::kLinkWorker;
  node.id = "link-1.a:b_C";
  node.incarnation = {7, 0xFFFF'FFFF'FFFF'FFFFull};
  node.addresses = {{"grpc", "10.0.0.1:8081"}, {"admin", "[::1]:8082"}};
  node.zone = "zone a";
  node.models = {{"00ff", "small"}, {"aa", ""}};
  node.state = NodeState::kServing;
  node.lease_ms = 5000;
  return node;
}

// Written by this version; later ones must read it.
constexpr char kGolden[] =
    R"({"format":1,"kind":"link_worker","id":"link-1.a:b_C","incarnation":{"boot":7,"random":18446744073709551615},)"
    R"("state":"serving","addresses":{"admin":"[::1]:8082","grpc":"10.0.0.1:8081"},"zone":"zone a",)"
    R"("models":[{"identity":"00ff","alias":"small"},{"identity":"aa","alias":""}],"lease_ms":5000})";

TEST(MemberRecordTest, ReadsAndWritesTheGoldenRecord) {
  EXPECT_EQ(EncodeMember(Sample()), kGolden);
  ASSERT_OK_AND_ASSIGN(const NodeInfo node, DecodeMember(kGolden));
  EXPECT_EQ(node, Sample());
}

TEST(MemberRecordTest, PassesOverFieldsThatItDoesNotKnowAndMissesNoneThatMayBeAbsent) {
  ASSERT_OK_AND_ASSIGN(
      const NodeInfo node,
      DecodeMember(R"({"format":2,"kind":"router","id":"r","incarnation":{"boot":1,"random":2,"more":3},)"
                   R"("state":"draining","addresses":{},"lease_ms":0,"new":{"a":[1]}})"));
  EXPECT_EQ(node.kind, NodeKind::kRouter);
  EXPECT_EQ(node.state, NodeState::kDraining);
}

TEST(MemberRecordTest, RefusesWhatIsNoRecord) {
  for (const char* text : {"", "{", "[]", "1", "{}", R"({"kind":"router"})", "\xff\xfe", R"("router")"}) {
    EXPECT_THAT(DecodeMember(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
  EXPECT_THAT(DecodeMember(std::string(100'000, ' ')), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(MemberRecordTest, RefusesNodesThatAreNotValid) {
  NodeInfo node = Sample();
  node.id = "a/b";
  EXPECT_THAT(ValidateNode(node), StatusIs(absl::StatusCode::kInvalidArgument));
  node = Sample();
  node.zone = "a\nb";
  EXPECT_THAT(ValidateNode(node), StatusIs(absl::StatusCode::kInvalidArgument));
  node = Sample();
  node.addresses["grpc"] = "";
  EXPECT_THAT(ValidateNode(node), StatusIs(absl::StatusCode::kInvalidArgument));
  node = Sample();
  node.models.resize(NodeInfo::kModels + 1, {"a", "b"});
  EXPECT_THAT(ValidateNode(node), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(MemberRecordTest, OrdersIncarnationsByBootFirst) {
  EXPECT_LT((Incarnation{1, 9}), (Incarnation{2, 0}));
  EXPECT_LT((Incarnation{1, 8}), (Incarnation{1, 9}));
}

TEST(MemberRecordTest, SurvivesDamagedRecords) {
  Rng rng(20261130);
  for (int i = 0; i < 5'000; ++i) {
    std::string text = kGolden;
    for (uint64_t n = 1 + rng.Below(4); n > 0; --n) {
      text[rng.Below(text.size())] = static_cast<char>(rng.Below(256));
    }
    const auto node = DecodeMember(text.substr(0, rng.Below(8) == 0 ? rng.Below(text.size()) : text.size()));
    if (node.ok()) {
      EXPECT_OK(ValidateNode(*node)) << text;
    }
  }
}

}  // namespace
}  // namespace epic
