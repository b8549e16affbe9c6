// Backups and what becomes of them: of random stores into empty ones, where they must be equal, and into
// changed ones, where they must be what the join of two nodes is; on real directories; and with disks that
// fill.
#include "services/kv_store/tools/backup.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/status/error.h"
#include "common/storage/record_codec.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/core/memory_table_store.h"
#include "services/kv_store/core/record_table.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/testing/faulty_table_store.h"
#include "services/kv_store/testing/store_directory.h"
#include "services/kv_store/testing/store_fixtures.h"
#include "services/kv_store/tools/store_check.h"

namespace epic::kv_store {
namespace {

namespace fs = std::filesystem;
using epic::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Rows = std::map<std::string, std::string>;
using Disk = std::shared_ptr<MemoryDisk>;

constexpr Table kBackedUp[] = {Table::kRecords, Table::kTokens, Table::kTombstones};
const std::string kTenants[] = {"default", "a", "tenant b"};

Rows RowsOf(const Disk& disk) {
  Rows rows;
  MemoryTableStore tables(disk);
  for (const Table table : kBackedUp) {
    EXPECT_OK(tables.Scan(table, [&](std::string_view key, std::string_view value) {
      rows[std::string(TableName(table)) + ":" + std::string(key)] = std::string(value);
      return true;
    }));
  }
  return rows;
}

Disk CopyOf(const Disk& disk) {
  auto copy = std::make_shared<MemoryDisk>();
  MemoryTableStore from(disk), to(copy);
  WriteBatch batch;
  for (size_t table = 0; table < kTables; ++table) {
    EXPECT_OK(from.Scan(static_cast<Table>(table), [&](std::string_view key, std::string_view value) {
      batch.Put(static_cast<Table>(table), std::string(key), std::string(value));
      return true;
    }));
  }
  EXPECT_OK(to.Write(batch, Sync::kYes));
  return copy;
}

std::unique_ptr<StoreCore> OpenCore(const Disk& disk, const Clock* clock) {
  auto store =
      StoreCore::Open(std::make_unique<MemoryTableStore>(disk),
                      {.memory_bytes = 1 << 20, .clock = clock, .writer = {.period_ms = 1'000'000'000}});
  EXPECT_OK(store.status());
  return *std::move(store);
}

NewContext RandomContext(Rng* rng) {
  NewContext context = ContextOf(rng->Below(12), 8, kTenants[rng->Below(3)]);
  if (rng->Below(3) == 0) context.ttl_seconds = 1 + static_cast<int64_t>(rng->Below(100));
  if (rng->Below(4) == 0) context.name = "name " + std::to_string(rng->Below(1000));
  if (rng->Below(4) == 0) context.tags = {"tag " + std::to_string(rng->Below(4))};
  if (rng->Below(4) == 0) context.pin = Pin::kSoft;
  context.hidden = rng->Below(10) == 0;
  return context;
}

// A life of a store: contexts come, change, go and expire.
void Live(const Disk& disk, ManualClock* clock, Rng* rng, int steps) {
  const auto store = OpenCore(disk, clock);
  for (int step = 0; step < steps; ++step) {
    const NewContext context = RandomContext(rng);
    const CacheId id = CacheId::Of(context.tenant, {}, context.tokens);
    switch (rng->Below(8)) {
      case 0:
      case 1:
      case 2:
        store->CreateContext(context).IgnoreError();  // the name may be taken
        break;
      case 3:
        store->UpdateContext(context.tenant, id, {.tags = context.tags, .name = context.name}).IgnoreError();
        break;
      case 4:
        EXPECT_OK(store->DeleteContext(context.tenant, id));
        break;
      case 5:
        store->SetState(context.tenant, id, ContextState::kReady, 5, "").IgnoreError();
        break;
      case 6:
        store->Touch(context.tenant, id);
        break;
      default:
        clock->AdvanceMs(static_cast<int64_t>(rng->Below(20'000)));
        store->Housekeep();
    }
  }
}

class BackupTest : public ::testing::Test {
 protected:
  std::string file() const { return dir_.path() + "/backup"; }

  BackupSummary Backup(const Disk& disk) {
    MemoryTableStore tables(disk);
    auto output = CreateOutputFile(file(), /*overwrite=*/true);
    EXPECT_OK(output.status());
    const auto report = WriteBackup(&tables, *std::move(output), {.created_at_ms = clock_.UnixMs()}, {});
    EXPECT_OK(report.status());
    return report->summary;
  }
  RestoreReport Restore(const Disk& disk) {
    MemoryTableStore tables(disk);
    const auto backup = BackupReader::Open(file());
    EXPECT_OK(backup.status());
    const auto report = JoinBackup(backup->get(), &tables, nullptr);
    EXPECT_OK(report.status());
    return *report;
  }

  std::string data(const std::string& name) const { return dir_.path() + "/" + name; }
  std::unique_ptr<KvStore> Open(const std::string& name) {
    auto store = EmbeddedStore::Open(
        {.dir = data(name),
         .store = {.memory_bytes = 4 << 20, .disk_bytes_max = 16 << 20, .clock = &clock_, .writer = {}},
         .scrub_bytes_per_s = 0});
    EXPECT_OK(store.status());
    return *std::move(store);
  }
  CacheId Create(const std::string& name, uint64_t seed) {
    const auto made = Open(name)->CreateContext(ContextOf(seed));
    EXPECT_OK(made.status());
    return made->record.id;
  }
  void ExpectSound(const std::string& name) {
    ASSERT_OK_AND_ASSIGN(const StoreReport report, CheckStore(data(name), {}));
    EXPECT_EQ(report.damage + report.left_over, 0u)
        << InfoOf(report.faults[0].kind).name << ": " << report.faults[0].detail;
  }

  const epic::testing::TempDir dir_;
  ManualClock clock_;
};

TEST_F(BackupTest, ARandomStoreRestoredElsewhereIsEqual) {
  const uint64_t first = std::random_device{}();
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(first));
  for (uint64_t seed = first; seed < first + 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto disk = std::make_shared<MemoryDisk>(), other = std::make_shared<MemoryDisk>();
    Live(disk, &clock_, &rng, static_cast<int>(rng.Below(150)));
    const BackupSummary summary = Backup(disk);
    const RestoreReport report = Restore(other);
    EXPECT_EQ(RowsOf(other), RowsOf(disk));
    EXPECT_EQ(report.added, summary.counts.live);
    EXPECT_EQ(report.changed, summary.counts.gone);
    EXPECT_EQ(report.summary.counts, summary.counts);
    ASSERT_OK(VerifyBackup(file()));
    const RestoreReport again = Restore(other);
    EXPECT_EQ(again.unchanged, summary.counts.live + summary.counts.gone);
    EXPECT_EQ(RowsOf(other), RowsOf(disk));
  }
}

TEST_F(BackupTest, ARestoreOverAChangedStoreIsTheJoinOfTwoNodes) {
  const uint64_t first = std::random_device{}();
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(first));
  for (uint64_t seed = first; seed < first + 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto disk = std::make_shared<MemoryDisk>();
    Live(disk, &clock_, &rng, 100);
    Backup(disk);
    // The same store later, or one that has nothing to do with it.
    const auto changed = rng.Below(2) == 0 ? disk : std::make_shared<MemoryDisk>();
    Live(changed, &clock_, &rng, 60);
    const Disk expected = CopyOf(changed);
    {
      const auto store = OpenCore(expected, &clock_);
      ASSERT_OK_AND_ASSIGN(const auto backup, BackupReader::Open(file()));
      while (true) {
        ASSERT_OK_AND_ASSIGN(const auto entry, backup->Next());
        if (!entry.has_value()) break;
        ASSERT_OK(store->JoinContext(entry->key, entry->state, &entry->tokens));
      }
    }
    const Disk before = CopyOf(changed);
    Restore(changed);
    EXPECT_EQ(RowsOf(changed), RowsOf(expected));
    Restore(changed);
    EXPECT_EQ(RowsOf(changed), RowsOf(expected)) << "once more changes nothing";
    // Nothing that was gone, and not begun again since, is back.
    const auto was = OpenCore(before, &clock_), now = OpenCore(changed, &clock_);
    for (uint64_t context = 0; context < 12 && changed == disk; ++context) {
      for (const std::string& tenant : kTenants) {
        const CacheId id = CacheId::Of(tenant, {}, TokensOf(context, 8));
        const absl::Status status = was->GetContext(tenant, id).status();
        if (status.ok() || CodeOf(status) == ErrorCode::kContextNotFound) continue;
        EXPECT_EQ(now->GetContext(tenant, id).status(), status);
      }
    }
  }
}

TEST_F(BackupTest, ADirectoryIsBackedUpWipedAndRestored) {
  const CacheId id = Create("store", 1);
  {
    const auto store = Open("store");
    ASSERT_OK(PutObject(store.get(), "default", {id, {}}, LayoutOf(8), 1));
    ASSERT_OK(store->SetState("default", id, ContextState::kReady, 7, ""));
  }
  const auto before = FilesOf(data("store"));
  clock_.AdvanceMs(5000);
  ASSERT_OK_AND_ASSIGN(const BackupReport made, CreateBackup(data("store"), file(), false, clock_, {}));
  EXPECT_TRUE(FilesOf(data("store")) == before) << "a backup changes nothing";
  EXPECT_EQ(made.summary.counts, (BackupCounts{.live = 1, .gone = 0, .tokens = 8}));
  EXPECT_EQ(made.summary.header.created_at_ms, clock_.UnixMs());
  EXPECT_EQ(made.summary.bytes, fs::file_size(file()));
  EXPECT_THAT(CreateBackup(data("store"), file(), false, clock_, {}).status(),
              StatusIs(absl::StatusCode::kAlreadyExists));
  fs::remove_all(data("store"));
  ASSERT_OK_AND_ASSIGN(const RestoreReport restored, RestoreBackup(file(), data("store"), clock_, nullptr));
  EXPECT_EQ(restored.added, 1u);
  EXPECT_FALSE(restored.may_revive);
  ExpectSound("store");
  const auto store = Open("store");
  ASSERT_OK_AND_ASSIGN(const ContextRecord record, store->GetContext("default", id));
  EXPECT_EQ(record.state, ContextState::kReady);
  EXPECT_EQ(store->GetTokens("default", id).value(), TokensOf(1, 8));
  // Its object is gone: a miss, and a compile puts it back.
  EXPECT_EQ(store->Acquire("default", {id, {}}, LayoutOf(8))->object, nullptr);
  ASSERT_OK(PutObject(store.get(), "default", {id, {}}, LayoutOf(8), 1));
}

TEST_F(BackupTest, NeitherIsDoneToAStoreThatRuns) {
  Create("store", 1);
  ASSERT_OK(CreateBackup(data("store"), file(), false, clock_, {}).status());
  const auto store = Open("store");
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process uses"));
  EXPECT_THAT(CreateBackup(data("store"), file() + "2", false, clock_, {}).status(), refused);
  EXPECT_THAT(RestoreBackup(file(), data("store"), clock_, nullptr).status(), refused);
  EXPECT_FALSE(fs::exists(file() + "2"));
}

TEST_F(BackupTest, ADamagedBackupChangesNothing) {
  Create("store", 1);
  ASSERT_OK(CreateBackup(data("store"), file(), false, clock_, {}).status());
  Create("store", 2);
  FlipByte(file(), fs::file_size(file()) / 2);
  const auto before = FilesOf(data("store"));
  EXPECT_THAT(RestoreBackup(file(), data("store"), clock_, nullptr).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(RestoreBackup(file(), data("new"), clock_, nullptr).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_TRUE(FilesOf(data("store")) == before);
  EXPECT_FALSE(fs::exists(data("new")));
}

TEST_F(BackupTest, WhatWasDeletedSinceStaysDeletedAndItsObjectsGoWithIt) {
  const CacheId deleted = Create("store", 1), kept = Create("store", 2);
  ASSERT_OK(CreateBackup(data("store"), file(), false, clock_, {}).status());
  clock_.AdvanceMs(1000);
  ASSERT_OK(Open("store")->DeleteContext("default", deleted));
  ASSERT_OK_AND_ASSIGN(const RestoreReport report, RestoreBackup(file(), data("store"), clock_, nullptr));
  EXPECT_EQ(report.stayed_gone, 1u);
  EXPECT_EQ(report.unchanged, 1u);
  EXPECT_EQ(CodeOf(Open("store")->GetContext("default", deleted).status()), ErrorCode::kContextDeleted);
  EXPECT_OK(Open("store")->GetContext("default", kept).status());
  // The other way round: a node that missed the deletion learns of it.
  ASSERT_OK(CreateBackup(data("store"), file(), true, clock_, {}).status());
  ManualClock early;
  {
    auto old = EmbeddedStore::Open(
        {.dir = data("old"),
         .store = {.memory_bytes = 4 << 20, .disk_bytes_max = 16 << 20, .clock = &early, .writer = {}},
         .scrub_bytes_per_s = 0});
    ASSERT_OK(old.status());
    for (const uint64_t seed : {1, 2}) {
      ASSERT_OK_AND_ASSIGN(const CreateResult made, (*old)->CreateContext(ContextOf(seed)));
      ASSERT_OK(PutObject(old->get(), "default", {made.record.id, {}}, LayoutOf(8), seed));
    }
  }
  ASSERT_OK_AND_ASSIGN(const RestoreReport other, RestoreBackup(file(), data("old"), clock_, nullptr));
  EXPECT_EQ(other.removed, 1u);
  ExpectSound("old");
  EXPECT_EQ(CodeOf(Open("old")->GetContext("default", deleted).status()), ErrorCode::kContextDeleted);
  EXPECT_NE(Open("old")->Acquire("default", {kept, {}}, LayoutOf(8))->object, nullptr);
}

TEST_F(BackupTest, DamagedRowsAreToldOrLeftOutAndMendedByARestore) {
  const CacheId id = Create("store", 1), other = Create("store", 2), third = Create("store", 3);
  ASSERT_OK(CreateBackup(data("store"), file(), false, clock_, {}).status());
  const auto row = [](const CacheId& context) { return RowKey(ContextKey{"default", context}); };
  {
    ASSERT_OK_AND_ASSIGN(const auto tables, OpenRocksDbTables({.dir = data("store")}));
    WriteBatch batch;
    batch.Put(Table::kRecords, row(id), "nothing");
    batch.Delete(Table::kTokens, row(other));
    batch.Put(Table::kTombstones, row(third), "nothing");
    ASSERT_OK(tables->Write(batch, Sync::kYes));
  }
  EXPECT_THAT(CreateBackup(data("store"), file() + "2", false, clock_, {}).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("epic store check"), HasSubstr("--skip-damaged"))));
  EXPECT_FALSE(fs::exists(file() + "2"));
  ASSERT_OK_AND_ASSIGN(const BackupReport partial, CreateBackup(data("store"), file() + "2", false, clock_,
                                                                {.skip_damaged = true, .progress = {}}));
  EXPECT_EQ(partial.summary.counts, BackupCounts{});
  EXPECT_EQ(partial.skipped.damage, 4u) << "the bad tombstone is met with its record, too";
  ASSERT_OK_AND_ASSIGN(const RestoreReport report, RestoreBackup(file(), data("store"), clock_, nullptr));
  EXPECT_EQ(report.mended, 2u);
  EXPECT_EQ(report.left_alone, 1u);
  {
    ASSERT_OK_AND_ASSIGN(const auto tables, OpenRocksDbTables({.dir = data("store")}));
    EXPECT_EQ(tables->Get(Table::kTombstones, row(third)).value(), "nothing");
    WriteBatch batch;
    batch.Delete(Table::kTombstones, row(third));
    ASSERT_OK(tables->Write(batch, Sync::kYes));
  }
  ExpectSound("store");
}

TEST_F(BackupTest, AnOldBackupOverALivingStoreIsToldToBringBackWhatWasForgotten) {
  const CacheId id = Create("store", 1);
  ASSERT_OK(CreateBackup(data("store"), file(), false, clock_, {}).status());
  ASSERT_OK(Open("store")->DeleteContext("default", id));
  clock_.AdvanceMs(kTombstoneLifeMs + 60'000);
  {
    const auto store = Open("store");
    dynamic_cast<StoreCore&>(*store).Housekeep();
  }
  ASSERT_OK_AND_ASSIGN(const RestoreReport report, RestoreBackup(file(), data("store"), clock_, nullptr));
  EXPECT_EQ(report.added, 1u);
  EXPECT_TRUE(report.may_revive);
  ASSERT_OK_AND_ASSIGN(const RestoreReport elsewhere, RestoreBackup(file(), data("new"), clock_, nullptr));
  EXPECT_FALSE(elsewhere.may_revive);
}

// Fills after so many bytes.
class SmallFile final : public OutputFile {
 public:
  SmallFile(std::unique_ptr<OutputFile> inner, uint64_t room) : inner_(std::move(inner)), room_(room) {}
  absl::Status Append(std::string_view bytes) override {
    if (bytes.size() > room_) return Error(ErrorCode::kStorageFull, "no space left");
    room_ -= bytes.size();
    return inner_->Append(bytes);
  }
  absl::Status Publish() override { return inner_->Publish(); }

 private:
  const std::unique_ptr<OutputFile> inner_;
  uint64_t room_;
};

TEST_F(BackupTest, ADiskThatFillsMidwayLeavesNoFile) {
  Rng rng(1);
  const auto disk = std::make_shared<MemoryDisk>();
  Live(disk, &clock_, &rng, 100);
  const uint64_t bytes = Backup(disk).bytes;
  fs::remove(file());
  for (uint64_t room = 0; room < bytes; room += 97) {
    MemoryTableStore tables(disk);
    ASSERT_OK_AND_ASSIGN(auto output, CreateOutputFile(file(), false));
    const auto report = WriteBackup(&tables, std::make_unique<SmallFile>(std::move(output), room), {}, {});
    EXPECT_EQ(CodeOf(report.status()), ErrorCode::kStorageFull) << room;
    EXPECT_TRUE(fs::is_empty(dir_.path())) << room;
  }
}

TEST_F(BackupTest, ARestoreThatADiskEndsIsGoneOnWith) {
  Rng rng(2);
  const auto disk = std::make_shared<MemoryDisk>(), other = std::make_shared<MemoryDisk>();
  Live(disk, &clock_, &rng, 150);
  Backup(disk);
  const auto faults = std::make_shared<Faults>(7);
  FaultyTableStore tables(std::make_unique<MemoryTableStore>(other), faults);
  faults->Set({.disk_full = 100});
  ASSERT_OK_AND_ASSIGN(const auto backup, BackupReader::Open(file()));
  EXPECT_THAT(JoinBackup(backup.get(), &tables, nullptr).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("do the restore again")));
  Restore(other);
  EXPECT_EQ(RowsOf(other), RowsOf(disk));
}

}  // namespace
}  // namespace epic::kv_store
