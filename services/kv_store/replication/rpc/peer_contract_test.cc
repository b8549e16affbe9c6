// What peer.h says of every peer, of one to a node of the same process and of one over gRPC.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/executor.h"
#include "common/base/timers.h"
#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/replication/replicator.h"
#include "services/kv_store/replication/rpc/remote_peer.h"
#include "services/kv_store/replication/rpc/testing/peer_door.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr int64_t kLongMs = 20'000;

// A cluster of one node.
class OneMember final : public Membership {
 public:
  OneMember() { Announce(NodeUp::kDown, 0); }
  std::shared_ptr<const MemberView> View() const override {
    MutexLock lock(&mu_);
    return view_;
  }
  void Announce(NodeUp up, uint64_t session) override {
    MutexLock lock(&mu_);
    auto view = std::make_shared<MemberView>();
    view->epoch = ++epoch_;
    view->members.push_back({.node = {"node-0", ""}, .up = up, .session = session});
    view->leader = "node-0";
    view_ = std::move(view);
    if (up == NodeUp::kServing) serves_.SignalAll();
  }
  void WaitUntilItServes() {
    MutexLock lock(&mu_);
    while (view_->members[0].up != NodeUp::kServing) serves_.Wait(&mu_);
  }

 private:
  mutable Mutex mu_;
  CondVar serves_;
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<const MemberView> view_ ABSL_GUARDED_BY(mu_);
};

enum class Kind { kLocal, kRemote };

class PeerContractTest : public ::testing::TestWithParam<Kind> {
 protected:
  PeerContractTest() {
    StoreOptions store_options{.memory_bytes = 1 << 20, .writer = {}};
    store_options.forgets_tombstones = false;
    auto store =
        StoreCore::Open(std::make_unique<MemoryTableStore>(std::make_shared<MemoryDisk>()), store_options);
    EXPECT_OK(store);
    store_ = *std::move(store);
    ReplicatorOptions options;
    options.name = "node-0";
    options.placement.replicas = 1;
    options.tick_ms = 10;
    auto replicator = Replicator::Open(options, {.store = store_.get(),
                                                 .membership = &member_,
                                                 .executor = &executor_,
                                                 .timers = &timers_,
                                                 .clock = SystemClock::Get(),
                                                 .peers = {},
                                                 .seed = 1});
    EXPECT_OK(replicator);
    replicator_ = *std::move(replicator);
    inlet_->Bind(replicator_);
    peer_ = inlet_;
    if (GetParam() == Kind::kRemote) {
      door_ = std::make_unique<PeerDoor>(inlet_);
      peer_ = std::make_shared<RemotePeer>(RemotePeerOptions{.address = door_->address()});
    }
  }
  ~PeerContractTest() override {
    replicator_.reset();
    door_.reset();
    timers_.Stop();
    executor_.Stop();
  }

  void Serve() {
    replicator_->Start();
    member_.WaitUntilItServes();
  }
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(void (ReplicaPeer::*method)(Request, int64_t, ReplicaPeer::Done<Reply>),
                            Request request, int64_t timeout_ms = kLongMs) {
    auto answer = Begin<Request, Reply>(peer_.get(), method, std::move(request), timeout_ms);
    auto came = answer->WaitMs(timeout_ms + 500);
    return came.has_value() ? *std::move(came) : absl::StatusOr<Reply>(absl::UnavailableError("no answer"));
  }
  absl::StatusOr<ChangeReply> Change(ContextKey key, decltype(ChangeRequest::what) what) {
    return Ask(&ReplicaPeer::Change, ChangeRequest{.id = ++last_id_,
                                                   .key = std::move(key),
                                                   .what = std::move(what),
                                                   .until_unix_ms = SystemClock::Get()->UnixMs() + kLongMs});
  }
  static ContextKey KeyOf(const NewContext& context) {
    return {context.tenant, CacheId::Of(context.tenant, context.model_identity, context.tokens)};
  }
  uint64_t session() { return replicator_->StandingNow().session; }

  ThreadExecutor executor_{2, 1024};
  TimerThread timers_{SystemClock::Get()};
  OneMember member_;
  std::unique_ptr<StoreCore> store_;
  std::shared_ptr<Replicator> replicator_;
  const std::shared_ptr<LocalPeer> inlet_ = std::make_shared<LocalPeer>();
  std::unique_ptr<PeerDoor> door_;
  std::shared_ptr<ReplicaPeer> peer_;
  uint64_t last_id_ = 0;
};

TEST_P(PeerContractTest, AChangeIsMadeAndAnswered) {
  Serve();
  NewContext context = ContextOf(1);
  context.name = "a";
  const ContextKey key = KeyOf(context);
  const auto created = Change(key, context);
  ASSERT_OK(created);
  EXPECT_TRUE(created->changed);
  EXPECT_EQ(created->record, *store_->GetContext(key.tenant, key.id));
  EXPECT_FALSE(Change(key, context)->changed);
  const auto updated = Change(key, ContextPatch{.ttl_seconds = std::optional<int64_t>(60)});
  ASSERT_OK(updated);
  EXPECT_EQ(updated->record.ttl_seconds, 60);
  EXPECT_EQ(Change(key, SetStateChange{ContextState::kFailed, 7, "why"})->record.error, "why");
  const auto deleted = Change(key, DeleteChange{});
  ASSERT_OK(deleted);
  EXPECT_TRUE(deleted->changed && deleted->tombstone.has_value());
  EXPECT_TRUE(deleted->record.id.empty());
  EXPECT_OK(Ask(&ReplicaPeer::Erase, EraseRequest{key, *deleted->tombstone}));
}

TEST_P(PeerContractTest, WhatTheNodeSaysKeepsItsCode) {
  Serve();
  const ContextKey key = KeyOf(ContextOf(1));
  const absl::Status unknown = Change(key, ContextPatch{}).status();
  EXPECT_EQ(CodeOf(unknown), ErrorCode::kContextNotFound);
  EXPECT_EQ(ParamOf(unknown), "id");
  EXPECT_FALSE(IsUnexpected(unknown));
  const absl::Status late =
      Ask(&ReplicaPeer::Change, ChangeRequest{.id = 5, .key = key, .what = DeleteChange{}}).status();
  EXPECT_EQ(CodeOf(late), ErrorCode::kDeadline);
}

TEST_P(PeerContractTest, WhatHasNoCodeKeepsItsKindAndHasNone) {
  const ContextKey key = KeyOf(ContextOf(1));
  const absl::Status other = Change(key, DeleteChange{}).status();
  EXPECT_TRUE(absl::IsAborted(other) && IsUnexpected(other)) << other;
  Serve();
  const absl::Status over =
      Ask(&ReplicaPeer::Send, SendRequest{.session = session() + 1, .beat = 0, .items = {}}).status();
  EXPECT_TRUE(absl::IsUnavailable(over) && IsUnexpected(over)) << over;
}

TEST_P(PeerContractTest, ARequestThatComesTwiceIsNotDoneTwice) {
  Serve();
  const NewContext context = ContextOf(1);
  const ContextKey key = KeyOf(context);
  const ChangeRequest request{
      .id = 77, .key = key, .what = context, .until_unix_ms = SystemClock::Get()->UnixMs() + kLongMs};
  EXPECT_OK(Ask(&ReplicaPeer::Change, request));
  EXPECT_OK(Change(key, DeleteChange{}));
  const absl::Status again = Ask(&ReplicaPeer::Change, request, 300).status();
  EXPECT_TRUE(absl::IsUnavailable(again) && IsUnexpected(again)) << again;
  EXPECT_FALSE(store_->GetContext(key.tenant, key.id).ok());
}

TEST_P(PeerContractTest, StatesAreJoinedAndReadWithTheirTokens) {
  Serve();
  const NewContext context = ContextOf(3, 500);
  const ContextKey key = KeyOf(context);
  ASSERT_OK(Change(key, context));
  const auto full = Ask(&ReplicaPeer::Query, QueryRequest{.keys = {key}, .with_tokens = true});
  ASSERT_OK(full);
  ASSERT_EQ(full->items.size(), 1u);
  ASSERT_NE(full->items[0].tokens, nullptr);
  EXPECT_EQ(*full->items[0].tokens, context.tokens);
  EXPECT_EQ(full->items[0].state, store_->StateOf(key));
  ASSERT_OK(store_->ForgetContext(key));
  SendRequest send{.session = session(), .beat = 0, .items = {full->items[0]}};
  send.items[0].tokens = nullptr;
  auto sent = Ask(&ReplicaPeer::Send, send);
  ASSERT_OK(sent);
  EXPECT_EQ(sent->standing.session, session());
  ASSERT_EQ(sent->results.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(sent->results[0].status));
  send.items[0].tokens = full->items[0].tokens;
  sent = Ask(&ReplicaPeer::Send, send);
  ASSERT_OK(sent);
  EXPECT_OK(sent->results[0].status);
  EXPECT_FALSE(sent->results[0].newer.has_value());
  EXPECT_EQ(*store_->GetTokens(key.tenant, key.id), context.tokens);
  // What overrules it is told.
  ASSERT_OK(Change(key, ContextPatch{.name = "later"}));
  sent = Ask(&ReplicaPeer::Send, send);
  ASSERT_OK(sent);
  ASSERT_TRUE(sent->results[0].newer.has_value());
  EXPECT_EQ(sent->results[0].newer, store_->StateOf(key));
}

TEST_P(PeerContractTest, PagesGoThroughAllThatIsKnown) {
  Serve();
  std::vector<ContextKey> keys;
  for (uint64_t at = 1; at <= 7; ++at) {
    keys.push_back(KeyOf(ContextOf(at)));
    ASSERT_OK(Change(keys.back(), ContextOf(at)));
  }
  ASSERT_OK(Change(keys[2], DeleteChange{}));
  std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return RowKey(a) < RowKey(b); });
  std::vector<ContextKey> found;
  FetchRequest fetch;
  fetch.limit = 3;
  do {
    const auto page = Ask(&ReplicaPeer::Fetch, fetch);
    ASSERT_OK(page);
    EXPECT_EQ(page->standing.up, NodeUp::kServing);
    for (const ReplicaItem& item : page->items) {
      found.push_back(item.key);
      EXPECT_EQ(item.state, store_->StateOf(item.key));
    }
    fetch.after = page->next;
  } while (fetch.after.has_value());
  EXPECT_EQ(found, keys);
}

TEST_P(PeerContractTest, NamesAndBeatsAreAnswered) {
  Serve();
  NewContext context = ContextOf(1);
  context.name = "taken";
  ASSERT_OK(Change(KeyOf(context), context));
  NameRequest name{.what = NameRequest::What::kClaim, .tenant = context.tenant, .name = "taken"};
  name.id = KeyOf(ContextOf(2)).id;
  name.home = "node-0";
  EXPECT_EQ(Ask(&ReplicaPeer::Name, name)->holder, KeyOf(context).id);
  name.name = "free";
  EXPECT_TRUE(Ask(&ReplicaPeer::Name, name)->holder.empty());
  const BeatLog beats{.beat = 4, .starts = {{3, {.unix_ms = 1, .counter = 2}}}};
  const auto beaten = Ask(&ReplicaPeer::Beat, BeatRequest{beats});
  ASSERT_OK(beaten);
  EXPECT_EQ(beaten->beats, beats);
  EXPECT_EQ(beaten->standing.beat, 4u);
}

TEST_P(PeerContractTest, AStoppedNodeSaysNothing) {
  Serve();
  replicator_->Stop();
  const absl::Status status = Ask(&ReplicaPeer::Beat, BeatRequest{}, 300).status();
  EXPECT_TRUE(absl::IsUnavailable(status) && IsUnexpected(status)) << status;
  replicator_.reset();
  const absl::Status gone = Ask(&ReplicaPeer::Beat, BeatRequest{}, 300).status();
  EXPECT_TRUE(absl::IsUnavailable(gone) && IsUnexpected(gone)) << gone;
}

INSTANTIATE_TEST_SUITE_P(Peers, PeerContractTest, ::testing::Values(Kind::kLocal, Kind::kRemote),
                         [](const auto& kind) { return kind.param == Kind::kLocal ? "Local" : "Remote"; });

}  // namespace
}  // namespace epic::kv_store
