// The messages between nodes on the wire: every field comes back as it went, absent ones too, and answers
// are cut to what a message bears.
#include "services/kv_store/replication/rpc/replica_convert.h"

#include <string>

#include <gtest/gtest.h>

#include "common/rpc/grpc_status.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/replication/rpc/replica_status.h"
#include "services/kv_store/replication/rpc/testing/any_message.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kSeeds = 300;

// Through the bytes of the wire.
template <typename Message>
Message Travel(const Message& message) {
  auto sent = ToProto(message);
  decltype(sent) arrived;
  EXPECT_TRUE(arrived.ParseFromString(sent.SerializeAsString()));
  absl::StatusOr<Message> back = FromProto(arrived);
  EXPECT_OK(back);
  return back.ok() ? *std::move(back) : Message{};
}

void ExpectSame(const Standing& a, const Standing& b) {
  EXPECT_EQ(std::tie(a.session, a.epoch, a.up, a.empty, a.beat, a.served_at),
            std::tie(b.session, b.epoch, b.up, b.empty, b.beat, b.served_at));
}

void ExpectSame(const std::vector<ReplicaItem>& a, const std::vector<ReplicaItem>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t at = 0; at < a.size(); ++at) {
    EXPECT_EQ(a[at].key, b[at].key);
    EXPECT_EQ(a[at].state, b[at].state);
    ASSERT_EQ(a[at].tokens == nullptr, b[at].tokens == nullptr);
    if (a[at].tokens != nullptr) {
      EXPECT_EQ(*a[at].tokens, *b[at].tokens);
    }
  }
}

TEST(ReplicaConvertTest, RequestsComeBackAsTheyWent) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    AnyMessage any(seed);
    const SendRequest send = any.Send(), sent = Travel(send);
    EXPECT_EQ(sent.session, send.session);
    EXPECT_EQ(sent.beat, send.beat);
    ExpectSame(sent.items, send.items);
    const FetchRequest fetch = any.Fetch(), fetched = Travel(fetch);
    EXPECT_EQ(std::tie(fetched.node, fetched.session, fetched.after, fetched.limit),
              std::tie(fetch.node, fetch.session, fetch.after, fetch.limit));
    const QueryRequest query = any.Query(), queried = Travel(query);
    EXPECT_EQ(std::tie(queried.keys, queried.with_tokens), std::tie(query.keys, query.with_tokens));
    const NameRequest name = any.Name(), named = Travel(name);
    EXPECT_EQ(std::tie(named.what, named.tenant, named.model_identity, named.name, named.id, named.home),
              std::tie(name.what, name.tenant, name.model_identity, name.name, name.id, name.home));
    const BeatRequest beat = any.Beat();
    EXPECT_EQ(Travel(beat).beats, beat.beats);
    const EraseRequest erase = any.Erase(), erased = Travel(erase);
    EXPECT_EQ(erased.key, erase.key);
    EXPECT_EQ(erased.tombstone, erase.tombstone);
  }
}

TEST(ReplicaConvertTest, ChangesComeBackAsTheyWent) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const ChangeRequest change = AnyMessage(seed).Change(), back = Travel(change);
    EXPECT_EQ(std::tie(back.id, back.key, back.until_unix_ms),
              std::tie(change.id, change.key, change.until_unix_ms));
    ASSERT_EQ(back.what.index(), change.what.index());
    if (const auto* a = std::get_if<NewContext>(&change.what)) {
      const auto& b = std::get<NewContext>(back.what);
      EXPECT_EQ(
          std::tie(b.tenant, b.model_identity, b.model, b.tokens, b.hidden, b.ttl_seconds, b.pin),
          std::tie(a->tenant, a->model_identity, a->model, a->tokens, a->hidden, a->ttl_seconds, a->pin));
      EXPECT_EQ(std::tie(b.pin_until_ms, b.tags, b.name, b.compile_prefix, b.durability),
                std::tie(a->pin_until_ms, a->tags, a->name, a->compile_prefix, a->durability));
    } else if (const auto* a = std::get_if<ContextPatch>(&change.what)) {
      const auto& b = std::get<ContextPatch>(back.what);
      EXPECT_EQ(std::tie(b.ttl_seconds, b.pin, b.pin_until_ms, b.tags, b.name),
                std::tie(a->ttl_seconds, a->pin, a->pin_until_ms, a->tags, a->name));
    } else if (const auto* a = std::get_if<SetStateChange>(&change.what)) {
      const auto& b = std::get<SetStateChange>(back.what);
      EXPECT_EQ(std::tie(b.state, b.compile_ms, b.error), std::tie(a->state, a->compile_ms, a->error));
    }
  }
}

TEST(ReplicaConvertTest, AnswersComeBackAsTheyWent) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    AnyMessage any(seed);
    const FetchReply fetch = any.Fetched(), fetched = Travel(fetch);
    ExpectSame(fetched.standing, fetch.standing);
    ExpectSame(fetched.items, fetch.items);
    EXPECT_EQ(fetched.next, fetch.next);
    const QueryReply query = any.Queried(), queried = Travel(query);
    ExpectSame(queried.standing, query.standing);
    ExpectSame(queried.items, query.items);
    const NameReply name = any.Named(), named = Travel(name);
    ExpectSame(named.standing, name.standing);
    EXPECT_EQ(named.holder, name.holder);
    const BeatReply beat = any.Beaten(), beaten = Travel(beat);
    ExpectSame(beaten.standing, beat.standing);
    EXPECT_EQ(beaten.beats, beat.beats);
    const EraseReply erase = any.Erased();
    ExpectSame(Travel(erase).standing, erase.standing);
    const ChangeReply change = any.Changed(), changed = Travel(change);
    EXPECT_EQ(std::tie(changed.record, changed.changed, changed.tombstone),
              std::tie(change.record, change.changed, change.tombstone));
  }
}

TEST(ReplicaConvertTest, ResultsOfASendComeBackWithTheirStatus) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    AnyMessage any(seed);
    SendReply sent{.standing = any.AnyStanding(), .results = {}};
    sent.results.push_back({.status = absl::OkStatus(), .newer = {}});
    sent.results.push_back({.status = absl::OkStatus(), .newer = any.State(any.Key())});
    sent.results.push_back({.status = absl::FailedPreconditionError("x"), .newer = {}});
    sent.results.push_back({.status = Error(ErrorCode::kStorageFull, "full"), .newer = {}});
    const SendReply back = Travel(sent);
    ExpectSame(back.standing, sent.standing);
    ASSERT_EQ(back.results.size(), sent.results.size());
    EXPECT_TRUE(back.results[0].status.ok() && !back.results[0].newer.has_value());
    EXPECT_EQ(back.results[1].newer, sent.results[1].newer);
    EXPECT_TRUE(absl::IsFailedPrecondition(back.results[2].status));
    EXPECT_EQ(CodeOf(back.results[3].status), ErrorCode::kStorageFull);
  }
}

TEST(ReplicaConvertTest, ALongPageIsCutAndSaysWhereItGoesOn) {
  AnyMessage any(1);
  FetchReply page;
  for (int at = 0; at < 10; ++at) {
    ReplicaItem item{.key = any.Key(), .state = {}, .tokens = nullptr};
    item.state.record = any.Record(item.key);
    item.state.record->compile_prefix.tokens.assign(300'000, 70'000);
    page.items.push_back(std::move(item));
  }
  const v1::ReplicaFetchResponse proto = ToProto(page);
  EXPECT_LE(proto.ByteSizeLong(), kFetchedBytes + 1000);
  ASSERT_EQ(proto.items_size(), 4);
  EXPECT_EQ(Travel(page).next, page.items[3].key);
  // One that is longer by itself goes alone.
  page.items[0].state.record->compile_prefix.tokens.assign(1'000'000, 1 << 30);
  EXPECT_EQ(Travel(page).items.size(), 1u);
  EXPECT_EQ(Travel(page).next, page.items[0].key);
}

TEST(ReplicaConvertTest, TheLongestContextFitsAMessage) {
  SendRequest request;
  ReplicaItem item{.key = AnyMessage(1).Key(), .state = {}, .tokens = nullptr};
  item.state.record = AnyMessage(2).Record(item.key);
  item.state.record->token_count = 1 << 24;
  item.state.record->compile_prefix.tokens.assign(1 << 20, 0xffffffff);
  item.tokens = std::make_shared<const std::vector<TokenId>>(1 << 24, 0xffffffff);
  request.items.push_back(std::move(item));
  EXPECT_LT(ToProto(request).ByteSizeLong(), kMaxReplicaMessageBytes);
}

TEST(ReplicaConvertTest, WhatAStoreMayNotBeHandedIsRefused) {
  AnyMessage any(3);
  const ContextKey key = any.Key();
  ReplicaItem item{.key = key, .state = {}, .tokens = nullptr};
  item.state.record = any.Record(key);
  item.state.record->token_count = 2;
  const auto refused = [&](const ReplicaItem& bad) {
    const auto read = FromProto(ToProto(SendRequest{.session = 1, .beat = 1, .items = {bad}}));
    return absl::IsInvalidArgument(read.status());
  };
  EXPECT_FALSE(refused(item));
  ReplicaItem bad = item;
  bad.key.id = any.Id();
  EXPECT_TRUE(refused(bad)) << "the record of another context";
  bad = item;
  bad.tokens = std::make_shared<const std::vector<TokenId>>(3, 7);
  EXPECT_TRUE(refused(bad)) << "other token ids than the record's";
  bad = item;
  bad.state.tombstone = Tombstone{};
  bad.state.tombstone->deleted = {bad.state.record->created.unix_ms + 1, 0};
  EXPECT_TRUE(refused(bad)) << "a record beside the tombstone that removes it";
  bad = item;
  bad.state.record->tags = {"b", "a"};
  EXPECT_TRUE(refused(bad)) << "tags in no order";
  bad = item;
  bad.state.record->created.unix_ms = -1;
  EXPECT_TRUE(refused(bad)) << "a time before all";
  bad = item;
  bad.key.tenant = bad.state.record->tenant = std::string(257, 't');
  EXPECT_TRUE(refused(bad)) << "a tenant that is too long";

  BeatRequest beats{{.beat = 3, .starts = {{4, {}}}}};
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(ToProto(beats)).status()));
  beats.beats = {.beat = uint64_t{1} << 60, .starts = {}};
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(ToProto(beats)).status()));
  beats.beats = {.beat = 5000, .starts = {}};
  for (uint64_t beat = 1; beat <= kMaxBeatStarts + 1; ++beat) beats.beats.starts[beat] = {};
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(ToProto(beats)).status()));

  v1::ReplicaChangeRequest change = ToProto(ChangeRequest{.id = 1, .key = key, .what = DeleteChange{}});
  EXPECT_OK(FromProto(change));
  change.set_until_unix_ms(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParamOf(FromProto(change).status()), "until_unix_ms");
  change.clear_what();
  EXPECT_EQ(ParamOf(FromProto(change).status()), "what");
  change = ToProto(ChangeRequest{.id = 1, .key = key, .what = NewContext{.tenant = key.tenant}});
  EXPECT_EQ(ParamOf(FromProto(change).status()), "create");
  FetchRequest fetch;
  fetch.limit = 0;
  EXPECT_EQ(ParamOf(FromProto(ToProto(fetch)).status()), "limit");
  EXPECT_EQ(ParamOf(FromProto(v1::ReplicaNameRequest()).status()), "action");
  EXPECT_EQ(ParamOf(FromProto(v1::ReplicaEraseResponse()).status()), "up");
}

TEST(ReplicaStatusTest, WhatANodeSaysIsToldFromWhatTheNetworkDoes) {
  const auto travelled = [](const absl::Status& status) {
    return FromReplicaGrpcStatus(ToReplicaGrpcStatus(status));
  };
  for (const ErrorInfo& info : ErrorTable()) {
    const absl::Status back = travelled(Error(info.code, "text", "field"));
    EXPECT_EQ(back, Error(info.code, "text", "field")) << info.name;
    EXPECT_FALSE(IsUnexpected(back)) << info.name;
  }
  EXPECT_EQ(RetryAfterMsOf(travelled(RetryLater(ErrorCode::kQueueFull, "text", 7))), 7);
  // Without a code of ours: the same absl code, and no text of the machine.
  const absl::Status aborted = travelled(absl::AbortedError("/var/lib"));
  EXPECT_TRUE(absl::IsAborted(aborted) && IsUnexpected(aborted));
  EXPECT_EQ(MessageOf(aborted).find("/var"), std::string::npos);
  EXPECT_EQ(CodeOf(travelled(absl::DeadlineExceededError("late"))), ErrorCode::kDeadline);
  // All codes of gRPC, and details of others.
  for (int code = 1; code <= 16; ++code) {
    for (const std::string& details : {std::string(), std::string("\xff\x01 no details"),
                                       ToGrpcStatus(Error(ErrorCode::kNameInUse, "x")).error_details()}) {
      const absl::Status network =
          FromReplicaGrpcStatus({static_cast<grpc::StatusCode>(code), "text", details});
      EXPECT_TRUE(absl::IsUnavailable(network) && IsUnexpected(network)) << code;
    }
  }
}

}  // namespace
}  // namespace epic::kv_store
