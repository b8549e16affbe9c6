// The dump of a stopped store: every context once, with what its rows say, whatever is damaged beside it.
#include "services/kv_store/tools/store_dump.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/store_directory.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

using epic::testing::StatusIs;

class StoreDumpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = EmbeddedStore::Open(
        {.dir = dir(),
         .store = {.memory_bytes = 4 << 20, .disk_bytes_max = 16 << 20, .clock = &clock_, .writer = {}},
         .scrub_bytes_per_s = 0});
    ASSERT_OK(store.status());
    for (uint64_t seed = 0; seed < 6; ++seed) {
      ASSERT_OK_AND_ASSIGN(const CreateResult made,
                           (*store)->CreateContext(ContextOf(seed, 8, Tenant(seed))));
      ids_.push_back(made.record.id);
      const KvLayout layout = seed == 0 ? LayoutOf(8, 2, 16, 256) : LayoutOf(8);
      ASSERT_OK(PutObject(store->get(), Tenant(seed), {made.record.id, {}}, layout, seed));
    }
    ASSERT_OK((*store)->DeleteContext(Tenant(4), ids_[4]));
  }
  std::string dir() const { return dir_.path() + "/store"; }
  static std::string Tenant(uint64_t seed) { return seed % 2 == 0 ? "default" : "other"; }

  std::map<CacheId, DumpedContext> Dump(const DumpOptions& options) {
    std::map<CacheId, DumpedContext> contexts;
    faults_.clear();
    const auto before = FilesOf(dir());
    EXPECT_OK(DumpStore(
        dir(), options,
        [&](const DumpedContext& context) {
          EXPECT_TRUE(contexts.emplace(context.key.id, context).second) << "told twice";
          return absl::OkStatus();
        },
        [&](const StoreFault& fault) { faults_.push_back(fault); }));
    EXPECT_TRUE(FilesOf(dir()) == before);
    return contexts;
  }

  const epic::testing::TempDir dir_;
  const ManualClock clock_;
  std::vector<CacheId> ids_;
  std::vector<StoreFault> faults_;
};

TEST_F(StoreDumpTest, EveryContextIsToldOnceWithWhereItsObjectsAre) {
  auto contexts = Dump({});
  ASSERT_EQ(contexts.size(), 6u);
  EXPECT_TRUE(faults_.empty());
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const DumpedContext& context = contexts[ids_[seed]];
    EXPECT_EQ(context.key.tenant, Tenant(seed));
    EXPECT_EQ(context.state.record.has_value(), seed != 4);
    EXPECT_EQ(context.state.tombstone.has_value(), seed == 4);
    EXPECT_FALSE(context.tokens.has_value());
    ASSERT_EQ(context.objects.size(), seed == 4 ? 0u : 1u);
    if (seed == 4) continue;
    EXPECT_EQ(context.objects[0].extents.empty(), seed != 0) << "small objects are rows";
    EXPECT_TRUE(context.objects[0].head.tokens.empty());
  }
}

TEST_F(StoreDumpTest, OnlyWhatWasAskedForIsTold) {
  EXPECT_EQ(Dump({.tenant = "other", .id = {}}).size(), 3u);
  EXPECT_EQ(Dump({.tenant = "nobody", .id = {}}).size(), 0u);
  EXPECT_EQ(Dump({.tenant = {}, .id = ids_[4]}).size(), 1u);
  EXPECT_EQ(Dump({.tenant = "other", .id = ids_[4]}).size(), 0u);
  auto one = Dump({.tenant = {}, .id = ids_[2], .with_tokens = true});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[ids_[2]].tokens, TokensOf(2, 8));
}

TEST_F(StoreDumpTest, DamagedRowsAreToldBesideTheOthers) {
  const auto row = [&](uint64_t seed) { return RowKey(ContextKey{Tenant(seed), ids_[seed]}); };
  {
    ASSERT_OK_AND_ASSIGN(const auto tables, OpenRocksDbTables({.dir = dir()}));
    WriteBatch batch;
    batch.Put(Table::kRecords, row(0), "x");
    batch.Put(Table::kTokens, row(1), "x");
    batch.Put(Table::kObjects, RowKey(TenantObjectKey{{Tenant(2), ids_[2]}, {}}), "x");
    batch.Delete(Table::kTokens, row(3));
    batch.Put(Table::kTombstones, row(4), "x");
    ASSERT_OK(tables->Write(batch, Sync::kYes));
  }
  EXPECT_EQ(Dump({.tenant = {}, .id = {}, .with_tokens = true}).size(), 4u);
  std::vector<FaultKind> kinds;
  for (const StoreFault& fault : faults_) kinds.push_back(fault.kind);
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre(FaultKind::kDamagedRecord, FaultKind::kDamagedTokens,
                                                     FaultKind::kDamagedObject, FaultKind::kMissingTokens,
                                                     FaultKind::kDamagedTombstone));
}

TEST_F(StoreDumpTest, AStatusOfTheCallerEndsIt) {
  int told = 0;
  const absl::Status status = DumpStore(
      dir(), {},
      [&](const DumpedContext&) {
        ++told;
        return absl::CancelledError("enough");
      },
      [](const StoreFault&) {});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace epic::kv_store
