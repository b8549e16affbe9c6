// What StoreCore offers to replication between nodes.
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using epic::testing::StatusIs;

class StoreReplicasTest : public ::testing::Test {
 protected:
  StoreReplicasTest() { Open(); }
  void Open() {
    store_.reset();
    StoreOptions options{.memory_bytes = 1 << 20, .clock = &clock_, .writer = {.period_ms = 1'000'000'000}};
    options.forgets_tombstones = false;
    auto store = StoreCore::Open(std::make_unique<MemoryTableStore>(disk_), options);
    ASSERT_OK(store.status());
    store_ = *std::move(store);
  }
  void Crash() {
    store_.reset();
    Rng rng(1);
    disk_->Crash(&rng);
    Open();
  }
  ContextKey Create(uint64_t seed, const std::string& tenant = "default") {
    const NewContext context = ContextOf(seed, 8, tenant);
    EXPECT_OK(store_->CreateContext(context).status());
    return {tenant, CacheId::Of(tenant, context.model_identity, context.tokens)};
  }

  ManualClock clock_;
  std::shared_ptr<MemoryDisk> disk_ = std::make_shared<MemoryDisk>();
  std::unique_ptr<StoreCore> store_;
};

TEST_F(StoreReplicasTest, KnownContextsComeInPagesWithoutGapsOrRepeats) {
  std::set<std::string> expected;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const ContextKey key = Create(seed, seed % 3 == 0 ? "a-longer-tenant" : "default");
    expected.insert(RowKey(key));
    if (seed % 4 == 0) {
      EXPECT_OK(store_->DeleteContext(key.tenant, key.id).status());  // a tombstone
    }
    if (seed % 8 == 0) Create(seed, key.tenant);  // made again
  }
  for (const size_t limit : {1, 7, 40, 1000}) {
    std::vector<std::string> seen;
    std::optional<ContextKey> after;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const auto page, store_->KnownContexts(after, limit));
      if (page.empty()) break;
      EXPECT_LE(page.size(), limit);
      for (const ContextKey& key : page) seen.push_back(RowKey(key));
      after = page.back();
    }
    EXPECT_EQ(seen, std::vector<std::string>(expected.begin(), expected.end()));
  }
}

TEST_F(StoreReplicasTest, AForgottenContextWasNeverHere) {
  const ContextKey key = Create(1);
  const ObjectKey object{key.id, {}};
  const KvLayout layout = LayoutOf(8);
  ASSERT_OK(PutObject(store_.get(), key.tenant, object, layout, 1).status());
  store_->DrainWrites();
  const ContextKey gone = Create(2);
  ASSERT_OK(store_->DeleteContext(gone.tenant, gone.id).status());
  EXPECT_OK(store_->ForgetContext(key));
  EXPECT_OK(store_->ForgetContext(gone));
  EXPECT_OK(store_->ForgetContext(gone));
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(store_->StateOf(key), std::nullopt);
    EXPECT_EQ(store_->StateOf(gone), std::nullopt);
    EXPECT_EQ(CodeOf(store_->GetContext(key.tenant, key.id).status()), ErrorCode::kContextNotFound);
    EXPECT_FALSE(store_->Exists(key.tenant, object));
    Crash();
  }
  Create(1);
  EXPECT_FALSE(store_->Exists(key.tenant, object));
}

TEST_F(StoreReplicasTest, ATickIsLaterThanWhatWasSeen) {
  const HybridTime far{clock_.UnixMs() + 5000, 3};
  const HybridTime first = store_->Tick(far);
  EXPECT_GT(first, far);
  EXPECT_GT(store_->Tick({}), first);
  const ContextKey key = Create(1);
  EXPECT_GT(store_->StateOf(key)->record->created, first);
}

TEST_F(StoreReplicasTest, TokensOfAnExpiredRecordAreStillThere) {
  NewContext context = ContextOf(3);
  context.ttl_seconds = 1;
  ASSERT_OK(store_->CreateContext(context).status());
  const ContextKey key{context.tenant, CacheId::Of(context.tenant, context.model_identity, context.tokens)};
  clock_.AdvanceMs(2000);
  EXPECT_THAT(store_->GetTokens(key.tenant, key.id), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(const auto tokens, store_->StoredTokens(key));
  EXPECT_EQ(tokens, context.tokens);
  store_->Housekeep();
  EXPECT_THAT(store_->StoredTokens(key), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StoreReplicasTest, TombstonesStayUntilTheyAreForgottenByName) {
  const ContextKey key = Create(1);
  ASSERT_OK(store_->DeleteContext(key.tenant, key.id).status());
  clock_.AdvanceMs(2 * kTombstoneLifeMs);
  store_->Housekeep();
  EXPECT_EQ(CodeOf(store_->GetContext(key.tenant, key.id).status()), ErrorCode::kContextDeleted);
  EXPECT_OK(store_->ForgetTombstone(key));
  EXPECT_EQ(store_->StateOf(key), std::nullopt);
}

TEST_F(StoreReplicasTest, ARowAboutTheNodeOutlivesACrash) {
  ASSERT_OK_AND_ASSIGN(const auto none, store_->GetNodeRow("replica"));
  EXPECT_EQ(none, std::nullopt);
  EXPECT_OK(store_->PutNodeRow("replica", "one"));
  Crash();
  ASSERT_OK_AND_ASSIGN(const auto row, store_->GetNodeRow("replica"));
  EXPECT_EQ(row, "one");
}

}  // namespace
}  // namespace epic::kv_store
