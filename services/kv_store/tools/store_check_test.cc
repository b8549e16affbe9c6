// The check of a stopped store: what is sound is called so, each kind of damage is named with its row,
// nothing is changed, and the repair drops no record.
#include "services/kv_store/tools/store_check.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/storage/record_codec.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/node/incarnation.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/extents/extent_header.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/store_directory.h"
#include "services/kv_store/testing/store_fixtures.h"
#include "services/kv_store/tools/store_repair.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;
using epic::testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint32_t kTokens = 40;

class StoreCheckTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Fill(SlabBackEnd::kExtents, 1);
    Fill(SlabBackEnd::kBlobFiles, 2);
  }

  // A context with a small object in rows and one whose slabs lie where `slabs` says, and a context that was
  // deleted.
  void Fill(SlabBackEnd slabs, uint64_t seed) {
    const auto store = Open(slabs);
    for (const uint64_t one : {seed, seed + 100}) {
      ASSERT_OK_AND_ASSIGN(const CreateResult made, store->CreateContext(ContextOf(one, kTokens)));
      ASSERT_OK(PutObject(store.get(), "default", {made.record.id, {}}, Layout(one < 100), one));
    }
    ASSERT_OK_AND_ASSIGN(const CreateResult gone, store->CreateContext(ContextOf(seed + 200, kTokens)));
    ASSERT_OK(store->DeleteContext("default", gone.record.id));
  }

  // Large enough for extents, or small enough for the rows.
  static KvLayout Layout(bool large) { return LayoutOf(kTokens, 2, large ? 8 : 2, large ? 64 : 8); }
  static ContextKey KeyOf(uint64_t seed) {
    return {"default", CacheId::Of("default", {}, TokensOf(seed, kTokens))};
  }
  static std::string ObjectRow(uint64_t seed) { return RowKey(TenantObjectKey{KeyOf(seed), {}}); }

  std::string dir() const { return dir_.path() + "/store"; }
  std::string extent_file() const { return dir() + "/slabs/extents-000000.dat"; }

  std::unique_ptr<KvStore> Open(SlabBackEnd slabs = SlabBackEnd::kExtents) {
    auto store = EmbeddedStore::Open(
        {.dir = dir(),
         .store = {.memory_bytes = 8 << 20, .disk_bytes_max = 64 << 20, .clock = &clock_, .writer = {}},
         .slabs = slabs,
         .scrub_bytes_per_s = 0});
    EXPECT_OK(store.status());
    return *std::move(store);
  }

  // Changes rows as no store would.
  void Change(const std::function<void(TableStore*, WriteBatch*)>& change) {
    auto tables = OpenRocksDbTables({.dir = dir()});
    ASSERT_OK(tables.status());
    WriteBatch batch;
    change(tables->get(), &batch);
    ASSERT_OK((*tables)->Write(batch, Sync::kYes));
  }
  static std::string Row(TableStore* tables, Table table, const std::string& key) {
    return tables->Get(table, key).value().value();
  }

  StoreReport Check(bool deep = true) {
    const auto before = FilesOf(dir());
    auto report = CheckStore(dir(), {.deep = deep, .progress = {}});
    EXPECT_OK(report.status());
    EXPECT_TRUE(FilesOf(dir()) == before) << "a check changes nothing";
    return *std::move(report);
  }
  // Checks that there is exactly one fault.
  void ExpectFault(FaultKind kind, const std::string& table, const std::string& key, bool deep = true) {
    const StoreReport report = Check(deep);
    ASSERT_EQ(report.damage + report.left_over, 1u) << (report.faults.empty() ? "" : report.faults[0].detail);
    EXPECT_EQ(InfoOf(report.faults[0].kind).name, InfoOf(kind).name) << report.faults[0].detail;
    EXPECT_EQ(report.faults[0].table, table);
    EXPECT_EQ(report.faults[0].key, key);
  }
  void RepairAndExpectSound(uint64_t dropped) {
    const StoreReport before = Check();
    const auto count = RepairStore(dir(), before);
    ASSERT_OK(count);
    EXPECT_EQ(*count, dropped);
    const StoreReport report = Check();
    EXPECT_EQ(report.damage + report.left_over, 0u);
    EXPECT_EQ(report.counts.records, before.counts.records);
  }

  const epic::testing::TempDir dir_;
  const ManualClock clock_;
};

TEST_F(StoreCheckTest, AWholeStoreIsCalledSo) {
  for (const bool deep : {true, false}) {
    const StoreReport report = Check(deep);
    EXPECT_EQ(report.damage, 0u) << report.faults[0].detail;
    EXPECT_EQ(report.left_over, 0u) << report.faults[0].detail;
    EXPECT_TRUE(report.complete);
    EXPECT_EQ(report.deep, deep);
    EXPECT_EQ(report.counts.records, 4u);
    EXPECT_EQ(report.counts.token_rows, 4u);
    EXPECT_EQ(report.counts.tokens, 4u * kTokens);
    EXPECT_EQ(report.counts.tombstones, 2u);
    EXPECT_EQ(report.counts.objects, 4u);
    EXPECT_EQ(report.counts.objects_in_extents, 1u);
    const uint64_t bytes = 2 * (Layout(true).TotalBytes() + Layout(false).TotalBytes());
    EXPECT_EQ(report.counts.object_bytes, bytes);
    EXPECT_EQ(report.counts.verified_bytes, deep ? bytes : 0);
    EXPECT_EQ(report.counts.extent_files, 1u);
  }
}

TEST_F(StoreCheckTest, AStoreThatRunsIsNotChecked) {
  const auto store = Open();
  EXPECT_THAT(CheckStore(dir(), {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process uses")));
}

TEST_F(StoreCheckTest, NoStoreOpensWhileItIsChecked) {
  bool asked = false;
  ASSERT_OK(CheckStore(dir(), {.deep = true, .progress = [&](const StoreCounts&) {
                                 asked = true;
                                 EXPECT_THAT(OpenRocksDbTables({.dir = dir()}).status(),
                                             StatusIs(absl::StatusCode::kFailedPrecondition));
                                 EXPECT_OK(CheckStore(dir(), {}).status()) << "another check may run";
                               }}));
  EXPECT_TRUE(asked);
}

TEST_F(StoreCheckTest, AFolderWithoutAStoreIsNone) {
  EXPECT_THAT(CheckStore(dir_.path(), {}).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("there is no store in")));
  EXPECT_THAT(CheckStore(dir_.path() + "/none", {}).status(), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(fs::exists(dir_.path() + "/none"));
}

TEST_F(StoreCheckTest, ADirectoryOfBeforeExtentsIsWhole) {
  fs::remove_all(dir());
  fs::copy(epic::testing::SourceDir() + "/services/kv_store/golden/directory_of_blob_files", dir(),
           fs::copy_options::recursive);
  const StoreReport report = Check();
  EXPECT_EQ(report.damage + report.left_over, 0u);
  EXPECT_EQ(report.counts.records, 2u);
  EXPECT_EQ(report.counts.objects, 2u);
}

TEST_F(StoreCheckTest, DamagedRecordsAreNamedAndNeverDropped) {
  const std::string key = RowKey(KeyOf(1));
  std::string record;
  Change([&](TableStore* tables, WriteBatch* batch) {
    record = Row(tables, Table::kRecords, key);
    std::string damaged = record;
    damaged[40] = static_cast<char>(~damaged[40]);
    batch->Put(Table::kRecords, key, damaged);
  });
  ExpectFault(FaultKind::kDamagedRecord, "records", key);
  ASSERT_OK(RepairStore(dir(), Check()));
  ExpectFault(FaultKind::kDamagedRecord, "records", key);
  const std::string other = RowKey(KeyOf(900));
  Change([&](TableStore*, WriteBatch* batch) {
    batch->Put(Table::kRecords, key, record);
    batch->Put(Table::kRecords, other, record);
  });
  ExpectFault(FaultKind::kDamagedRecord, "records", other);
  Change([&](TableStore*, WriteBatch* batch) {
    record[4] = 99;
    batch->Put(Table::kRecords, other, record);
  });
  ExpectFault(FaultKind::kNewerRecord, "records", other);
}

TEST_F(StoreCheckTest, TokenIdsThatAreMissingWrongOrNobodysAreNamed) {
  const std::string key = RowKey(KeyOf(1));
  Change([&](TableStore*, WriteBatch* batch) { batch->Delete(Table::kTokens, key); });
  ExpectFault(FaultKind::kMissingTokens, "records", key);
  Change([&](TableStore*, WriteBatch* batch) {
    batch->Put(Table::kTokens, key, EncodeTokens(TokensOf(7, kTokens)));
  });
  ExpectFault(FaultKind::kDamagedTokens, "tokens", key);
  Change([&](TableStore*, WriteBatch* batch) {
    batch->Put(Table::kTokens, key, EncodeTokens(TokensOf(1, kTokens - 1)));
  });
  ExpectFault(FaultKind::kDamagedTokens, "tokens", key);
  Change([&](TableStore*, WriteBatch* batch) { batch->Put(Table::kTokens, key, "nothing"); });
  ExpectFault(FaultKind::kDamagedTokens, "tokens", key);
  ASSERT_OK(RepairStore(dir(), Check()));
  ExpectFault(FaultKind::kDamagedTokens, "tokens", key);
  const std::string nobody = RowKey(KeyOf(900));
  Change([&](TableStore*, WriteBatch* batch) {
    batch->Put(Table::kTokens, key, EncodeTokens(TokensOf(1, kTokens)));
    batch->Put(Table::kTokens, nobody, EncodeTokens(TokensOf(900, kTokens)));
  });
  ExpectFault(FaultKind::kTokensWithoutRecord, "tokens", nobody);
  RepairAndExpectSound(1);
}

TEST_F(StoreCheckTest, ARecordThatItsTombstoneRemovesIsNamed) {
  const std::string key = RowKey(KeyOf(101));
  Change([&](TableStore*, WriteBatch* batch) {
    batch->Put(Table::kTombstones, key,
               EncodeTombstone({.at = {1'800'000'000'000, 0}, .deleted = {1'800'000'000'000, 0}}));
    batch->Delete(Table::kObjects, ObjectRow(101));
  });
  const StoreReport report = Check();
  ASSERT_EQ(report.damage, 1u);
  EXPECT_EQ(report.faults[0].kind, FaultKind::kRemovedRecord);
  EXPECT_EQ(report.left_over, 1u) << "the slabs of the object whose entry went";
  Change([&](TableStore*, WriteBatch* batch) { batch->Put(Table::kTombstones, key, "nothing"); });
  RepairStore(dir(), Check()).IgnoreError();
  ExpectFault(FaultKind::kDamagedTombstone, "tombstones", key);
}

TEST_F(StoreCheckTest, ADamagedCountOfStartsIsNamed) {
  Change([&](TableStore*, WriteBatch* batch) {
    batch->Put(Table::kNode, "boot_counter", EncodeBootCounter(3));
    batch->Put(Table::kNode, "of a later version", "anything");
  });
  const StoreReport report = Check();
  EXPECT_EQ(report.damage, 0u);
  EXPECT_EQ(report.counts.node_rows, 2u);
  Change([&](TableStore*, WriteBatch* batch) { batch->Put(Table::kNode, "boot_counter", "nothing"); });
  ExpectFault(FaultKind::kDamagedNodeRow, "node", "boot_counter");
}

TEST_F(StoreCheckTest, ObjectsThatBelongToNothingOrToAnotherAreNamedAndDropped) {
  std::string entry;
  Change([&](TableStore* tables, WriteBatch* batch) {
    entry = Row(tables, Table::kObjects, ObjectRow(1));
    std::string damaged = entry;
    damaged[60] = static_cast<char>(~damaged[60]);
    batch->Put(Table::kObjects, ObjectRow(1), damaged);
  });
  ExpectFault(FaultKind::kDamagedObject, "objects", ObjectRow(1));
  RepairAndExpectSound(1);
  Change([&](TableStore*, WriteBatch* batch) { batch->Put(Table::kObjects, ObjectRow(2), entry); });
  StoreReport report = Check();
  ASSERT_EQ(report.damage, 1u);
  EXPECT_EQ(report.faults[0].kind, FaultKind::kDamagedObject) << "the entry of another context";
  EXPECT_EQ(report.left_over, 1u);
  RepairAndExpectSound(2);
  Change([&](TableStore*, WriteBatch* batch) { batch->Put(Table::kObjects, ObjectRow(900), entry); });
  ExpectFault(FaultKind::kDamagedObject, "objects", ObjectRow(900));
  RepairAndExpectSound(1);
  Change([&](TableStore*, WriteBatch* batch) {
    batch->Delete(Table::kRecords, RowKey(KeyOf(1)));
    batch->Delete(Table::kTokens, RowKey(KeyOf(1)));
    batch->Put(Table::kObjects, ObjectRow(1), entry);
  });
  ExpectFault(FaultKind::kObjectWithoutRecord, "objects", ObjectRow(1));
  RepairAndExpectSound(1);
}

TEST_F(StoreCheckTest, SlabsThatAreDamagedMissingOrLeftOverAreNamedAndDropped) {
  // The first object in extents begins behind the header.
  FlipByte(extent_file(), 4096 + 100);
  EXPECT_EQ(Check(/*deep=*/false).damage, 0u) << "only reading them tells";
  ExpectFault(FaultKind::kDamagedSlabs, "objects", ObjectRow(1));
  RepairAndExpectSound(1);
  uint64_t number = 0;
  Change([&](TableStore* tables, WriteBatch* batch) {
    number = DecodeObjectEntry(AsBytes(Row(tables, Table::kObjects, ObjectRow(101))))->number;
    std::string slab = Row(tables, Table::kSlabs, SlabRowKey(number, 1, 0));
    slab[5] = static_cast<char>(~slab[5]);
    batch->Put(Table::kSlabs, SlabRowKey(number, 1, 0), slab);
  });
  ExpectFault(FaultKind::kDamagedSlabs, "objects", ObjectRow(101));
  Change([&](TableStore*, WriteBatch* batch) { batch->Put(Table::kSlabs, SlabRowKey(number, 1, 0), "x"); });
  ExpectFault(FaultKind::kDamagedSlabs, "objects", ObjectRow(101));
  Change([&](TableStore*, WriteBatch* batch) { batch->Delete(Table::kSlabs, SlabRowKey(number, 1, 0)); });
  ExpectFault(FaultKind::kMissingSlabs, "objects", ObjectRow(101));
  RepairAndExpectSound(1);
  Change([&](TableStore* tables, WriteBatch* batch) {
    number = DecodeObjectEntry(AsBytes(Row(tables, Table::kObjects, ObjectRow(102))))->number;
    batch->Delete(Table::kSlabs, SlabRowKey(number, 0, 0));
    batch->Delete(Table::kSlabs, SlabRowKey(number, 1, 0));
    batch->Put(Table::kSlabs, SlabRowKey(77, 0, 0), "left");
    batch->Put(Table::kSlabs, SlabRowKey(77, 3, 1), "left");
    batch->Put(Table::kSlabs, "odd", "left");
  });
  const StoreReport report = Check(/*deep=*/false);
  ASSERT_EQ(report.damage, 1u);
  EXPECT_EQ(report.faults[0].kind, FaultKind::kMissingSlabs);
  EXPECT_EQ(report.left_over, 2u);
  RepairAndExpectSound(3);
}

TEST_F(StoreCheckTest, ExtentsThatAreOutsideOverlapOrRepeatAreNamedAndDropped) {
  const auto change = [&](const std::function<void(ObjectEntry*)>& fn, uint64_t seed) {
    Change([&](TableStore* tables, WriteBatch* batch) {
      auto entry = DecodeObjectEntry(AsBytes(Row(tables, Table::kObjects, ObjectRow(1))));
      ASSERT_OK(entry.status());
      fn(&*entry);
      entry->head.id = KeyOf(seed).id;
      entry->head.tokens = TokensOf(seed, kTokens);
      batch->Put(Table::kObjects, ObjectRow(seed), EncodeObjectEntry(*entry));
    });
  };
  {
    const auto store = Open();
    ASSERT_OK(store->CreateContext(ContextOf(3, kTokens)));
  }
  change(
      [](ObjectEntry* entry) {
        entry->number = 500;
        entry->extents[0].page = 1 << 20;
      },
      3);
  ExpectFault(FaultKind::kMissingSlabs, "objects", ObjectRow(3));
  change(
      [](ObjectEntry* entry) {
        entry->number = 500;
        entry->extents[0].file = 9;
      },
      3);
  ExpectFault(FaultKind::kMissingSlabs, "objects", ObjectRow(3), /*deep=*/false);
  change(
      [](ObjectEntry* entry) {
        entry->number = 500;
        entry->extents[0].page = 0;
      },
      3);
  ExpectFault(FaultKind::kMissingSlabs, "objects", ObjectRow(3));
  RepairAndExpectSound(1);
  change([](ObjectEntry* entry) { entry->number = 500; }, 3);
  ExpectFault(FaultKind::kSharedSlabs, "objects", ObjectRow(1));
  change([](ObjectEntry* entry) { entry->number = 0; }, 3);
  ExpectFault(FaultKind::kSharedSlabs, "objects", ObjectRow(3));
  change([](ObjectEntry*) {}, 3);
  const StoreReport report = Check();
  ASSERT_EQ(report.damage, 1u) << "of two with one number, one is sound";
  EXPECT_EQ(report.faults[0].kind, FaultKind::kSharedSlabs);
  RepairAndExpectSound(1);
}

TEST_F(StoreCheckTest, DamagedExtentFilesAreNamed) {
  FlipByte(extent_file(), 13);
  ExpectFault(FaultKind::kDamagedExtentFile, "extents", "extents-000000.dat");
  Open().reset();
  EXPECT_EQ(Check().damage, 0u) << "a start mends it";
  fs::remove(extent_file());
  ExpectFault(FaultKind::kMissingSlabs, "objects", ObjectRow(1));
}

TEST_F(StoreCheckTest, TablesThatCannotBeReadAreToldAndNothingIsDropped) {
  for (const auto& file : fs::directory_iterator(dir() + "/rocksdb")) {
    if (file.path().filename().string().starts_with("MANIFEST")) FlipByte(file.path().string(), 20);
  }
  const StoreReport report = Check();
  EXPECT_FALSE(report.complete);
  ASSERT_EQ(report.damage, 1u);
  EXPECT_EQ(report.faults[0].kind, FaultKind::kUnreadableTables);
  EXPECT_THAT(RepairStore(dir(), report).status(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StoreCheckTest, ALogThatIsDamagedBeforeItsEndIsTold) {
  std::string log;
  uint64_t bytes = 0;
  Change([](TableStore* tables, WriteBatch* batch) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      WriteBatch one;
      one.Put(Table::kTombstones, RowKey(KeyOf(1000 + seed)), EncodeTombstone({.at = {1, 1}}));
      ASSERT_OK(tables->Write(one, Sync::kYes));
    }
    batch->Put(Table::kTombstones, RowKey(KeyOf(2000)), EncodeTombstone({.at = {1, 1}}));
  });
  for (const auto& file : fs::directory_iterator(dir() + "/rocksdb")) {
    if (file.path().extension() == ".log" && file.file_size() > bytes) {
      log = file.path().string();
      bytes = file.file_size();
    }
  }
  ASSERT_GT(bytes, 1000u);
  FlipByte(log, bytes / 2);
  const StoreReport report = Check();
  EXPECT_FALSE(report.complete);
  ASSERT_EQ(report.damage, 1u);
  EXPECT_EQ(report.faults[0].kind, FaultKind::kUnreadableTables);
  EXPECT_GT(report.counts.records, 0u) << "what stands before it is checked";
}

}  // namespace
}  // namespace epic::kv_store
