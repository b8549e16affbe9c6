// How often RocksDB syncs the disk for what the store does, and what a cut-off log leaves.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/status/error.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "rocksdb/env.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/counting_file_system.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTenant = "default";
constexpr uint32_t kTokens = 64;

CacheId IdOf(uint64_t seed) { return CacheId::Of(kTenant, {}, TokensOf(seed, kTokens)); }

std::unique_ptr<StoreCore> OpenStore(const std::string& dir, rocksdb::Env* env = nullptr) {
  auto tables = OpenRocksDbTables({.dir = dir, .env = env});
  EXPECT_OK(tables);
  auto store = StoreCore::Open(*std::move(tables),
                               {.memory_bytes = 8 << 20, .disk_bytes_max = 64 << 20, .writer = {}});
  EXPECT_OK(store);
  return *std::move(store);
}

class SyncTest : public ::testing::Test {
 protected:
  void SetUp() override {
    env_ = rocksdb::NewCompositeEnv(std::make_shared<CountingFileSystem>(&syncs_));
    store_ = OpenStore(dir_.path() + "/data", env_.get());
    ASSERT_OK(store_->CreateContext(ContextOf(0, kTokens)));  // the first write of a new log syncs its folder
  }
  // Syncs that `act` and the writes behind it cost.
  template <typename Act>
  uint64_t SyncsOf(Act act) {
    const uint64_t before = syncs_.total();
    act();
    store_->DrainWrites();
    return syncs_.total() - before;
  }
  void CreateWith(uint64_t seed, Durability durability = Durability::kReplicas) {
    NewContext context = ContextOf(seed, kTokens);
    context.durability = durability;
    ASSERT_OK(store_->CreateContext(context));
  }
  void Put(uint64_t seed, const KvLayout& layout) {
    ASSERT_OK(PutObject(store_.get(), kTenant, {IdOf(seed), {}}, layout, seed));
    ASSERT_OK(store_->SetState(kTenant, IdOf(seed), ContextState::kReady, 1, ""));
  }

  const KvLayout small_ = LayoutOf(kTokens, 4, 2, 16);   // slabs of 8 KiB
  const KvLayout large_ = LayoutOf(kTokens, 4, 2, 128);  // slabs of 64 KiB
  epic::testing::TempDir dir_;
  SyncCounter syncs_;
  std::unique_ptr<rocksdb::Env> env_;
  std::unique_ptr<StoreCore> store_;
};

TEST_F(SyncTest, ACreateIsOneSyncAndASmallObjectNone) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(SyncsOf([&] { CreateWith(seed); }), 1u) << seed;
    EXPECT_EQ(SyncsOf([&] { Put(seed, small_); }), 0u) << seed;
  }
}

TEST(EmptyBatchTest, MakesWhatWasWrittenBeforeSafe) {
  const epic::testing::TempDir dir;
  SyncCounter syncs;
  const std::unique_ptr<rocksdb::Env> env =
      rocksdb::NewCompositeEnv(std::make_shared<CountingFileSystem>(&syncs));
  ASSERT_OK_AND_ASSIGN(const auto tables, OpenRocksDbTables({.dir = dir.path() + "/data", .env = env.get()}));
  WriteBatch batch;
  batch.Put(Table::kObjects, "key", "value");
  ASSERT_OK(tables->Write(batch, Sync::kNo));
  const uint64_t before = syncs.counts()["log"];
  ASSERT_OK(tables->Write({}, Sync::kYes));
  EXPECT_EQ(syncs.counts()["log"], before + 1);
}

TEST_F(SyncTest, ExpiredContextsCostTheNextCreateNothing) {
  NewContext brief = ContextOf(1, kTokens);
  brief.ttl_seconds = 0;
  ASSERT_OK(store_->CreateContext(brief));
  EXPECT_EQ(SyncsOf([&] { CreateWith(2); }), 1u);
  EXPECT_EQ(CodeOf(store_->GetContext(kTenant, IdOf(1)).status()), ErrorCode::kContextExpired);
}

TEST_F(SyncTest, ASmallObjectThatMustBeDurableIsOneSync) {
  CreateWith(1, Durability::kObject);
  EXPECT_EQ(SyncsOf([&] { Put(1, small_); }), 1u);
}

TEST_F(SyncTest, ALargeObjectIsFlushedByItselfAndItsEntryNotSynced) {
  CreateWith(1);
  Put(1, large_);  // the first flush of a store costs other than the next ones
  store_->DrainWrites();
  CreateWith(2);
  const uint64_t lazy = SyncsOf([&] { Put(2, large_); });
  CreateWith(3, Durability::kObject);
  const uint64_t durable = SyncsOf([&] { Put(3, large_); });
  EXPECT_GE(lazy, 3u) << "table, blob file, manifest; and folders, and the log before";
  EXPECT_LE(lazy, 6u);
  EXPECT_GT(durable, lazy) << "also the log";
  EXPECT_LE(durable, lazy + 3) << "and its folder, where the flush began a new log";
}

// The last bytes of a log that was never synced may be missing after a power cut, anywhere.
TEST_F(SyncTest, ALogThatIsCutOffKeepsWhatWasSyncedAndNoTornObject) {
  const auto log_of = [](const std::string& dir) {
    std::string newest;
    for (const auto& file : fs::directory_iterator(dir + "/rocksdb")) {
      if (file.path().extension() == ".log") newest = std::max(newest, file.path().string());
    }
    return newest;
  };
  const std::string data = dir_.path() + "/data";
  CreateWith(1);
  const uint64_t synced = fs::file_size(log_of(data));
  Put(1, small_);
  store_->DrainWrites();
  const uint64_t whole = fs::file_size(log_of(data));
  ASSERT_GT(whole, synced + small_.TotalBytes());
  int hits = 0;
  const uint64_t step = (whole - synced) / 8;
  for (uint64_t size = synced; size <= whole;
       size = size == whole ? whole + 1 : std::min(size + step, whole)) {
    const std::string copy = dir_.path() + "/copy" + std::to_string(size);
    fs::copy(data, copy, fs::copy_options::recursive);
    fs::resize_file(log_of(copy), size);
    const auto store = OpenStore(copy);
    ASSERT_OK_AND_ASSIGN(const auto tokens, store->GetTokens(kTenant, IdOf(1)));
    EXPECT_EQ(tokens, TokensOf(1, kTokens));
    ASSERT_OK_AND_ASSIGN(const AcquireResult result, store->Acquire(kTenant, {IdOf(1), {}}, small_));
    if (result.object == nullptr) continue;
    ++hits;
    EXPECT_TRUE(Holds(*result.object, 1));
  }
  EXPECT_GE(hits, 1) << "the whole log holds the object";
  EXPECT_LE(hits, 2) << "a part of it does not";
}

}  // namespace
}  // namespace epic::kv_store
