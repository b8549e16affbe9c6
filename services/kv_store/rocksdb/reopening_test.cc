// Tables whose database was closed and opened again after an error, as their caller sees them.
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "services/kv_store/faults/testing/faulty_rocks_file_system.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/rocksdb/write_journal.h"

namespace epic::kv_store {
namespace {

class ReopeningTest : public ::testing::Test {
 protected:
  void SetUp() override { Open(); }
  void Open() {
    tables_.reset();
    auto tables = OpenRocksDbTables({.dir = dir_.path() + "/data", .env = env_.get(), .clock = &clock_});
    ASSERT_OK(tables);
    tables_ = *std::move(tables);
    tables_->SetErrorSink([this](const absl::Status& status) { untold_.push_back(status); });
  }
  void CrashAndOpen() {
    power_->CutAfter(0);
    tables_.reset();
    files_->Crash(&rng_);
    power_->Restore();
    Open();
  }
  absl::Status Put(Table table, const std::string& key, const std::string& value, Sync sync = Sync::kYes) {
    WriteBatch batch;
    batch.Put(table, key, value);
    return tables_->Write(batch, sync);
  }
  absl::Status Delete(Table table, const std::string& begin, const std::string& end) {
    WriteBatch batch;
    batch.DeleteRange(table, begin, end);
    return tables_->Write(batch, Sync::kYes);
  }
  // Its value; "-": none.
  std::string At(Table table, const std::string& key) {
    const auto value = tables_->Get(table, key);
    EXPECT_OK(value);
    return value.ok() ? value->value_or("-") : "?";
  }
  // A write is refused, and the next one finds that the disk works.
  void FailAndRecover() {
    files_->FailNamed(RocksOp::kSync, ".log", 1);
    EXPECT_FALSE(Put(Table::kNode, "refused", "x").ok());
    EXPECT_OK(Put(Table::kNode, "taken", "x"));
    clock_.AdvanceMs(10'000);
  }

  const epic::testing::TempDir dir_;
  ManualClock clock_;
  Rng rng_{7};
  const std::shared_ptr<Power> power_ = std::make_shared<Power>();
  const std::shared_ptr<FaultyRocksFileSystem> files_ = std::make_shared<FaultyRocksFileSystem>(7, power_);
  const std::unique_ptr<rocksdb::Env> env_ = MakeSleeplessEnv(files_);
  std::vector<absl::Status> untold_;  // errors that no call returned
  std::unique_ptr<TableStore> tables_;
};

TEST_F(ReopeningTest, RowsThatBypassedTheLogAreFlushedOrTheFlushSaysThatTheyAreLost) {
  const std::string value(100'000, 'v');
  ASSERT_OK(tables_->PutUnlogged(Table::kSlabs, "a1", AsBytes(value)));
  FailAndRecover();
  ASSERT_OK(tables_->PutUnlogged(Table::kSlabs, "a2", AsBytes(value)));
  EXPECT_FALSE(tables_->Flush(Table::kSlabs).ok());
  EXPECT_FALSE(tables_->Flush(Table::kSlabs).ok()) << "until nobody wants them any more";
  EXPECT_OK(tables_->Flush(Table::kRecords));
  EXPECT_OK(tables_->Reclaim());
  ASSERT_OK(Delete(Table::kSlabs, "a", "b"));
  EXPECT_OK(tables_->Flush(Table::kSlabs));
  ASSERT_OK(tables_->PutUnlogged(Table::kSlabs, "b1", AsBytes(value)));
  EXPECT_OK(tables_->Flush(Table::kSlabs));
  FailAndRecover();
  EXPECT_OK(tables_->Flush(Table::kSlabs)) << "what was flushed before is not lost";
  CrashAndOpen();
  EXPECT_EQ(At(Table::kSlabs, "a1"), "-");
  EXPECT_EQ(At(Table::kSlabs, "b1"), value);
}

TEST_F(ReopeningTest, ARefusedDeletionOfManyRowsIsUndone) {
  constexpr int kRows = 5000;  // more than are deleted one by one
  WriteBatch batch;
  for (int row = 0; row < kRows; ++row) batch.Put(Table::kObjects, "k" + std::to_string(row), "v");
  ASSERT_OK(tables_->Write(batch, Sync::kYes));
  files_->FailNamed(RocksOp::kSync, ".log", 1);
  EXPECT_FALSE(Delete(Table::kObjects, "k", "l").ok());
  EXPECT_OK(Put(Table::kNode, "taken", "x"));
  CrashAndOpen();
  int found = 0;
  ASSERT_OK(tables_->Scan(Table::kObjects, [&](std::string_view, std::string_view) { return ++found > 0; }));
  EXPECT_EQ(found, kRows);
}

// Of so many rows nobody keeps a list: such a deletion is synced, though it was not asked to be.
TEST_F(ReopeningTest, ADeletionOfManyRowsHoldsThoughTheLogBehindItIsLost) {
  constexpr int kRows = 5000;  // more than are deleted one by one
  files_->SetLostOfFailedSyncs(100);
  for (int round = 0; round < 8; ++round) {
    WriteBatch rows;
    for (int row = 0; row < kRows; ++row) rows.Put(Table::kObjects, "k" + std::to_string(row), "v");
    ASSERT_OK(tables_->Write(rows, Sync::kYes));
    WriteBatch deletion;
    deletion.DeleteRange(Table::kObjects, "k", "l");
    ASSERT_OK(tables_->Write(deletion, Sync::kNo));
    FailAndRecover();
    int found = 0;
    ASSERT_OK(
        tables_->Scan(Table::kObjects, [&](std::string_view, std::string_view) { return ++found > 0; }));
    EXPECT_EQ(found, 0) << "round " << round;
  }
}

TEST_F(ReopeningTest, AnErrorThatNoCallReturnedIsToldAndRecoveredFrom) {
  const std::string value(1 << 20, 'v');
  files_->FailNamed(RocksOp::kSync, ".sst", 1);
  // The writes fill a table in memory, whose flush fails behind them. The next write after that hears of it:
  // the sink is told, or, if it fails while the write is on its way, the write's own caller.
  size_t refused = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int row = 0; untold_.empty() && refused == 0 && std::chrono::steady_clock::now() < until; ++row) {
    const bool fills = row < 40;
    const absl::Status put =
        Put(fills ? Table::kTokens : Table::kNode, "t" + std::to_string(row), fills ? value : "x");
    refused += put.ok() ? 0 : 1;
    clock_.AdvanceMs(10'000);
  }
  ASSERT_EQ(untold_.size() + refused, 1u);
  EXPECT_OK(Put(Table::kNode, "taken", "x"));
  EXPECT_EQ(At(Table::kTokens, "t0"), value);
}

TEST_F(ReopeningTest, WritesWithoutSyncsAreSyncedNowAndThen) {
  ASSERT_OK(Put(Table::kRecords, "k", "v"));
  const uint64_t before = files_->Calls(RocksOp::kSync);
  WriteBatch batch;
  for (int row = 0; row < 1024; ++row) batch.Put(Table::kRecords, "k" + std::to_string(row), "v");
  for (int write = 0; write < 60; ++write) ASSERT_OK(tables_->Write(batch, Sync::kNo));
  EXPECT_EQ(files_->Calls(RocksOp::kSync), before);
  for (int write = 0; write < 10; ++write) ASSERT_OK(tables_->Write(batch, Sync::kNo));
  EXPECT_GT(files_->Calls(RocksOp::kSync), before) << "else what is to be written again grows without bound";
}

TEST_F(ReopeningTest, WhileTheTablesCannotBeOpenedReadsAreRefused) {
  ASSERT_OK(Put(Table::kRecords, "k", "v"));
  files_->FailNamed(RocksOp::kSync, ".log", 1);
  EXPECT_FALSE(Put(Table::kRecords, "k", "w").ok());
  EXPECT_EQ(At(Table::kRecords, "k"), "v") << "until they are closed they are read";
  const uint64_t bytes = tables_->PhysicalBytes();
  files_->FailNamed(RocksOp::kSync, "MANIFEST", 1);
  EXPECT_FALSE(Put(Table::kRecords, "k", "w").ok());
  EXPECT_THAT(tables_->Get(Table::kRecords, "k").status(),
              epic::testing::StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(tables_->Scan(Table::kRecords, [](std::string_view, std::string_view) { return true; }).ok());
  EXPECT_EQ(tables_->PhysicalBytes(), bytes);
  EXPECT_FALSE(Put(Table::kRecords, "k", "w").ok()) << "too early to try again";
  clock_.AdvanceMs(10'000);
  EXPECT_OK(Put(Table::kRecords, "l", "w"));
  EXPECT_EQ(At(Table::kRecords, "k"), "v");
}

TEST_F(ReopeningTest, AFullDiskIsNotClosedBeforeThereIsRoomToOpenIt) {
  ASSERT_OK(Put(Table::kRecords, "k", std::string(2 << 20, 'v')));
  files_->SetCapacity(files_->UsedBytes() + 10);
  EXPECT_THAT(Put(Table::kRecords, "l", "v"), epic::testing::StatusIs(absl::StatusCode::kResourceExhausted));
  files_->SetCapacity(files_->UsedBytes() + (1 << 20));
  EXPECT_THAT(Put(Table::kRecords, "l", "v"), epic::testing::StatusIs(absl::StatusCode::kResourceExhausted))
      << "the log does not fit into a table yet";
  EXPECT_EQ(At(Table::kRecords, "k").size(), size_t{2} << 20);
  files_->SetCapacity(std::numeric_limits<uint64_t>::max());
  EXPECT_OK(Put(Table::kRecords, "l", "v"));
}

// --- the journal

WrittenRows RowsOf(const std::vector<std::string>& keys) {
  WrittenRows rows;
  for (const std::string& key : keys) rows.rows.push_back({Table::kRecords, key});
  return rows;
}

TEST(WriteJournalTest, ASyncDropsWhatEndedBeforeItBegan) {
  WriteJournal journal;
  journal.Add(RowsOf({"a"}));
  const uint64_t mark = journal.Mark();
  journal.Add(RowsOf({"b"}));
  journal.DropBefore(mark);
  journal.DropBefore(mark);
  ASSERT_EQ(journal.All().size(), 1u);
  EXPECT_EQ(journal.All()[0].rows[0].key, "b");
  journal.Clear();
  EXPECT_TRUE(journal.All().empty());
  EXPECT_EQ(journal.Mark(), 2u);
}

TEST(WriteJournalTest, ItIsFullByRowsAndByBytes) {
  WriteJournal journal;
  EXPECT_FALSE(journal.IsFull());
  WrittenRows large = RowsOf({"a"});
  large.bytes = uint64_t{1} << 30;
  journal.Add(large);
  EXPECT_TRUE(journal.IsFull());
  journal.Clear();
  EXPECT_FALSE(journal.IsFull());
  journal.Add(RowsOf(std::vector<std::string>(100'000, "a")));
  EXPECT_TRUE(journal.IsFull());
}

TEST(UnloggedRowsTest, AreLostUntilTheyAreFlushedDeletedOrWrittenAgain) {
  UnloggedRows rows;
  rows.Add(Table::kSlabs, "a");
  const uint64_t mark = rows.Mark();
  rows.Add(Table::kSlabs, "b");
  rows.Flushed(Table::kSlabs, mark);
  rows.LoseAll();
  EXPECT_TRUE(rows.AnyLost(Table::kSlabs));
  EXPECT_FALSE(rows.AnyLost(Table::kRecords));
  WriteBatch other;
  other.DeleteRange(Table::kSlabs, "a", "b");
  rows.Forget(other);
  EXPECT_TRUE(rows.AnyLost(Table::kSlabs));
  rows.Add(Table::kSlabs, "b");
  EXPECT_FALSE(rows.AnyLost(Table::kSlabs));
  rows.LoseAll();
  WriteBatch removal;
  removal.Delete(Table::kSlabs, "b");
  rows.Forget(removal);
  EXPECT_FALSE(rows.AnyLost(Table::kSlabs));
}

}  // namespace
}  // namespace epic::kv_store
