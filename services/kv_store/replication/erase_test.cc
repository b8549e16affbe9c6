// Three nodes in one process on real directories, RocksDB and extents: one is down during a deletion, and
// back. Nobody serves the context, and its bytes are in no file of any directory.
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/executor.h"
#include "common/base/timers.h"
#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/extents/extent_slab_store.h"
#include "services/kv_store/extents/posix_file_system.h"
#include "services/kv_store/replication/replicator.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/store_directory.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr size_t kNodes = 3;

// One view for all, without delay.
class Members {
 public:
  Members() {
    auto view = std::make_shared<MemberView>();
    for (size_t at = 0; at < kNodes; ++at) {
      view->members.push_back(
          {.node = {"node-" + std::to_string(at), ""}, .up = NodeUp::kDown, .session = 0});
    }
    view_ = view;
  }
  std::shared_ptr<const MemberView> View() {
    MutexLock lock(&mu_);
    return view_;
  }
  void Show(size_t node, NodeUp up, uint64_t session) {
    MutexLock lock(&mu_);
    auto view = std::make_shared<MemberView>(*view_);
    ++view->epoch;
    view->members[node].up = up;
    view->members[node].session = session;
    view_ = view;
    changed_.SignalAll();
  }
  void WaitUntilAllServe() {
    MutexLock lock(&mu_);
    while (view_->Serving() < kNodes) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::shared_ptr<const MemberView> view_ ABSL_GUARDED_BY(mu_);
};

class MemberOf final : public Membership {
 public:
  MemberOf(Members* members, size_t node) : members_(members), node_(node) {}
  std::shared_ptr<const MemberView> View() const override { return members_->View(); }
  void Announce(NodeUp up, uint64_t session) override {
    // Before anybody hears that it serves.
    if (up == NodeUp::kServing && before_serving) before_serving();
    members_->Show(node_, up, session);
  }
  std::function<void()> before_serving;

 private:
  Members* const members_;
  const size_t node_;
};

class EraseTest : public ::testing::Test {
 protected:
  struct Node {
    std::string dir;
    std::shared_ptr<LocalPeer> inlet = std::make_shared<LocalPeer>();
    std::unique_ptr<MemberOf> member;
    std::unique_ptr<StoreCore> store;
    std::shared_ptr<Replicator> replicator;
  };

  EraseTest() {
    for (size_t at = 0; at < kNodes; ++at) {
      nodes_[at].dir = dir_.path() + "/" + std::to_string(at);
      nodes_[at].member = std::make_unique<MemberOf>(&members_, at);
    }
    for (size_t at = 0; at < kNodes; ++at) Start(at);
    members_.WaitUntilAllServe();
    const uint64_t seed = 77;
    context_ = ContextOf(seed, 300);
    id_ = CacheId::Of(context_.tenant, context_.model_identity, context_.tokens);
  }
  ~EraseTest() override {
    for (Node& node : nodes_) node.replicator.reset();
    timers_.Stop();
    executor_.Stop();
  }

  void Start(size_t at) {
    Node& node = nodes_[at];
    StoreOptions options{.memory_bytes = 16 << 20, .disk_bytes_max = 256 << 20, .writer = {}};
    options.forgets_tombstones = false;
    options.make_slabs =
        [folder = node.dir + "/slabs"](
            std::function<absl::Status()> sync_index) -> absl::StatusOr<std::unique_ptr<SlabStore>> {
      return ExtentSlabStore::Open(
          MakePosixFileSystem(),
          {.folder = folder, .max_bytes = 128 << 20, .file_bytes = 32 << 20, .grow_bytes = 1 << 20},
          std::move(sync_index));
    };
    auto tables = OpenRocksDbTables({.dir = node.dir});
    ASSERT_OK(tables.status());
    auto store = StoreCore::Open(*std::move(tables), options);
    ASSERT_OK(store.status());
    node.store = *std::move(store);
    ReplicatorOptions replica_options;
    replica_options.name = "node-" + std::to_string(at);
    replica_options.tick_ms = 10;
    replica_options.retry_ms = 10;
    replica_options.page = 16;
    ReplicatorDeps deps{.store = node.store.get(),
                        .membership = node.member.get(),
                        .executor = &executor_,
                        .timers = &timers_,
                        .clock = SystemClock::Get(),
                        .peers = {},
                        .seed = ++starts_};
    for (size_t other = 0; other < kNodes; ++other) {
      if (other != at) deps.peers["node-" + std::to_string(other)] = nodes_[other].inlet;
    }
    auto replicator = Replicator::Open(replica_options, deps);
    ASSERT_OK(replicator.status());
    node.replicator = *std::move(replicator);
    node.inlet->Bind(node.replicator);
    node.replicator->Start();
  }
  void Stop(size_t at) {
    nodes_[at].replicator->Stop();
    members_.Show(at, NodeUp::kDown, 0);
    nodes_[at].replicator.reset();
    nodes_[at].store.reset();
  }

  absl::StatusOr<CreateResult> Create(size_t at, const NewContext& context) {
    std::promise<absl::StatusOr<CreateResult>> answer;
    nodes_[at].replicator->Create(context,
                                  [&](absl::StatusOr<CreateResult> r) { answer.set_value(std::move(r)); });
    return answer.get_future().get();
  }
  absl::StatusOr<DeleteResult> Delete(size_t at, EraseMode erase) {
    std::promise<absl::StatusOr<DeleteResult>> answer;
    nodes_[at].replicator->Delete(context_.tenant, id_, erase,
                                  [&](absl::StatusOr<DeleteResult> r) { answer.set_value(std::move(r)); });
    return answer.get_future().get();
  }
  absl::StatusOr<ContextRecord> Get(size_t at) {
    std::promise<absl::StatusOr<ContextRecord>> answer;
    nodes_[at].replicator->Get(context_.tenant, id_,
                               [&](absl::StatusOr<ContextRecord> r) { answer.set_value(std::move(r)); });
    return answer.get_future().get();
  }

  // Of the token ids, and of each object's slabs.
  std::vector<std::string> Secrets() const {
    std::string tokens(64, '\0');
    std::memcpy(tokens.data(), context_.tokens.data() + 120, tokens.size());
    return {tokens, SlabOf(large_, 1, 5).substr(5000, 64), SlabOf(small_, 1, 6).substr(70, 64)};
  }
  void ExpectNothingIn(size_t at) {
    for (const std::string& secret : Secrets()) {
      EXPECT_TRUE(FilesWith(nodes_[at].dir, secret).empty()) << FilesWith(nodes_[at].dir, secret)[0];
    }
  }

  const KvLayout large_ = LayoutOf(300, 3, 2, 64);
  const KvLayout small_ = LayoutOf(300, 2, 1, 8);
  epic::testing::TempDir dir_;
  ThreadExecutor executor_{4, 4096};
  TimerThread timers_{SystemClock::Get()};
  Members members_;
  uint64_t starts_ = 0;
  NewContext context_;
  CacheId id_;
  std::array<Node, kNodes> nodes_;
};

TEST_F(EraseTest, AContextDeletedWhileANodeWasDownIsGoneFromAllDisks) {
  ASSERT_OK_AND_ASSIGN(const CreateResult created, Create(0, context_));
  EXPECT_TRUE(created.created);
  NewContext kept = ContextOf(78, 300);
  ASSERT_OK(Create(1, kept).status());
  const ObjectVariant other{.prefix = CompilePrefixKind::kSystem, .prefix_tokens = Sha256Of(AsBytes("head"))};
  for (Node& node : nodes_) {
    EXPECT_OK(node.store->GetContext(context_.tenant, id_).status()) << "every node that is up has it";
    ASSERT_OK(PutObject(node.store.get(), context_.tenant, {id_, {}}, large_, 5).status());
    ASSERT_OK(PutObject(node.store.get(), context_.tenant, {id_, other}, small_, 6).status());
    node.store->DrainWrites();
    for (const std::string& secret : Secrets()) EXPECT_FALSE(FilesWith(node.dir, secret).empty());
  }
  Stop(2);

  ASSERT_OK_AND_ASSIGN(const DeleteResult deleted, Delete(0, EraseMode::kWait));
  EXPECT_TRUE(deleted.existed);
  EXPECT_EQ(deleted.pending, std::vector<std::string>{"node-2"});
  for (const size_t at : {0, 1}) {
    EXPECT_EQ(CodeOf(Get(at).status()), ErrorCode::kContextDeleted);
    ExpectNothingIn(at);
  }
  for (const std::string& secret : Secrets()) EXPECT_FALSE(FilesWith(nodes_[2].dir, secret).empty());

  bool erased_before_serving = false;
  nodes_[2].member->before_serving = [&] {
    erased_before_serving = true;
    EXPECT_EQ(CodeOf(nodes_[2].store->GetContext(context_.tenant, id_).status()), ErrorCode::kContextDeleted);
    ExpectNothingIn(2);
  };
  Start(2);
  members_.WaitUntilAllServe();
  EXPECT_TRUE(erased_before_serving);
  for (size_t at = 0; at < kNodes; ++at) {
    EXPECT_EQ(CodeOf(Get(at).status()), ErrorCode::kContextDeleted);
    const auto hit = nodes_[at].store->Acquire(context_.tenant, {id_, {}}, large_);
    EXPECT_TRUE(hit.ok() && hit->object == nullptr);
    const auto live =
        nodes_[at].store->GetTokens(kept.tenant, CacheId::Of(kept.tenant, kept.model_identity, kept.tokens));
    ASSERT_OK(live.status());
    EXPECT_EQ(*live, kept.tokens);
  }
  ASSERT_OK_AND_ASSIGN(const DeleteResult again, Delete(1, EraseMode::kWait));
  EXPECT_FALSE(again.existed);
  EXPECT_TRUE(again.pending.empty());
}

TEST_F(EraseTest, WithTooFewNodesNothingIsChangedUnlessOneIsEnough) {
  Stop(1);
  Stop(2);
  const auto refused = Create(0, context_);
  EXPECT_EQ(CodeOf(refused.status()), ErrorCode::kInsufficientReplicas);
  EXPECT_EQ(CodeOf(nodes_[0].store->GetContext(context_.tenant, id_).status()), ErrorCode::kContextNotFound);
  context_.durability = Durability::kOne;
  ASSERT_OK(Create(0, context_).status());
  EXPECT_EQ(CodeOf(Delete(0, EraseMode::kLater).status()), ErrorCode::kInsufficientReplicas);
  EXPECT_OK(nodes_[0].store->GetContext(context_.tenant, id_).status());
  Start(1);
  Start(2);
  members_.WaitUntilAllServe();
  for (size_t at = 0; at < kNodes; ++at) EXPECT_OK(Get(at).status());
  ASSERT_OK_AND_ASSIGN(const DeleteResult deleted, Delete(1, EraseMode::kLater));
  EXPECT_TRUE(deleted.existed);
}

TEST_F(EraseTest, ANameBelongsToOneContextOfAllNodes) {
  context_.name = "one";
  ASSERT_OK(Create(0, context_).status());
  NewContext second = ContextOf(79, 20);
  second.name = "one";
  for (size_t at = 0; at < kNodes; ++at) {
    EXPECT_EQ(CodeOf(Create(at, second).status()), ErrorCode::kNameInUse);
  }
  ASSERT_OK(Delete(2, EraseMode::kLater).status());
  ASSERT_OK(Create(1, second).status());
  // Of many that want one name at a time one gets it.
  std::vector<std::promise<absl::StatusOr<CreateResult>>> answers(12);
  for (size_t at = 0; at < answers.size(); ++at) {
    NewContext claim = ContextOf(100 + at, 20);
    claim.name = "two";
    nodes_[at % kNodes].replicator->Create(
        claim, [&answers, at](absl::StatusOr<CreateResult> r) { answers[at].set_value(std::move(r)); });
  }
  int named = 0;
  for (auto& answer : answers) {
    const auto result = answer.get_future().get();
    named += result.ok() ? 1 : 0;
    if (!result.ok()) {
      EXPECT_EQ(CodeOf(result.status()), ErrorCode::kNameInUse);
    }
  }
  EXPECT_EQ(named, 1);
}

}  // namespace
}  // namespace epic::kv_store
