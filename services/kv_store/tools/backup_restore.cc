// The half of backup.h that reads.
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "common/base/absl_std.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/core/record_table.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/tools/backup.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kNoteEvery = 1024;
constexpr size_t kBatchChanges = 1024;
constexpr uint64_t kBatchBytes = uint64_t{1} << 20;

// What the store has of one context.
struct Mine {
  std::optional<std::string> record_row, tombstone_row;
  ReplicaState state;
  bool record_is_damaged = false;
  bool tombstone_is_damaged = false;
};

class Restore {
 public:
  Restore(TableStore* tables, RestoreReport* report) : tables_(tables), report_(report) {}

  absl::Status Add(const BackupEntry& theirs) {
    const std::string row = RowKey(theirs.key);
    // What is read below must not wait in the batch. Keys are told once, but for a strange file that tells
    // one as a context that lives and again as one that is gone.
    const bool is_first_gone = !theirs.state.record.has_value() && !any_gone_;
    if (is_first_gone) EPIC_RETURN_IF_ERROR(Flush(Sync::kNo));
    any_gone_ = any_gone_ || is_first_gone;
    EPIC_ASSIGN_OR_RETURN(const Mine mine, Read(row));
    if (mine.tombstone_is_damaged) {
      // It may be what keeps the context deleted.
      ++report_->left_alone;
      return absl::OkStatus();
    }
    const size_t before = batch_.changes().size();
    const ReplicaState joined = Join(mine.state, theirs.state);
    if (joined.record.has_value()) {
      EPIC_RETURN_IF_ERROR(PutRecord(row, mine, *joined.record, theirs));
    } else if (mine.record_row.has_value()) {
      batch_.Delete(Table::kRecords, row);
      batch_.Delete(Table::kTokens, row);
      removed_.insert(row);
    }
    if (joined.tombstone.has_value() && joined.tombstone != mine.state.tombstone) {
      Put(Table::kTombstones, row, EncodeTombstone(*joined.tombstone));
    }
    Count(mine, theirs.state, joined, batch_.changes().size() > before);
    if (batch_.changes().size() < kBatchChanges && batch_bytes_ < kBatchBytes) return absl::OkStatus();
    return Flush(Sync::kNo);
  }

  absl::Status Finish() {
    EPIC_RETURN_IF_ERROR(Flush(Sync::kNo));
    EPIC_RETURN_IF_ERROR(DropObjects());
    return Flush(Sync::kYes);
  }

 private:
  absl::StatusOr<Mine> Read(const std::string& row) {
    Mine mine;
    EPIC_ASSIGN_OR_RETURN(mine.record_row, tables_->Get(Table::kRecords, row));
    EPIC_ASSIGN_OR_RETURN(mine.tombstone_row, tables_->Get(Table::kTombstones, row));
    if (mine.record_row.has_value()) {
      auto record = DecodeRecord(AsBytes(*mine.record_row));
      if (absl::IsUnimplemented(record.status())) return record.status();
      mine.record_is_damaged = !record.ok() || RowKey(ContextKey{record->tenant, record->id}) != row;
      if (!mine.record_is_damaged) mine.state.record = *std::move(record);
    }
    if (mine.tombstone_row.has_value()) {
      auto tombstone = DecodeTombstone(AsBytes(*mine.tombstone_row));
      if (absl::IsUnimplemented(tombstone.status())) return tombstone.status();
      mine.tombstone_is_damaged = !tombstone.ok();
      if (tombstone.ok()) mine.state.tombstone = *tombstone;
    }
    if (mine.state.record.has_value() && mine.state.tombstone.has_value() &&
        !Counts(*mine.state.record, *mine.state.tombstone)) {
      mine.state.record.reset();
    }
    return mine;
  }

  absl::Status PutRecord(const std::string& row, const Mine& mine, const ContextRecord& record,
                         const BackupEntry& theirs) {
    if (record != mine.state.record) Put(Table::kRecords, row, EncodeRecord(record));
    if (mine.record_is_damaged) ++report_->mended;
    if (theirs.tokens.empty()) return absl::OkStatus();
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> stored, tables_->Get(Table::kTokens, row));
    if (stored.has_value()) {
      // Whatever hashes to the Cache ID is the same.
      const auto tokens = DecodeTokens(AsBytes(*stored));
      if (tokens.ok() && *tokens == theirs.tokens) return absl::OkStatus();
    }
    if (mine.state.record.has_value()) ++report_->mended;
    Put(Table::kTokens, row, EncodeTokens(theirs.tokens));
    return absl::OkStatus();
  }

  void Count(const Mine& mine, const ReplicaState& theirs, const ReplicaState& joined, bool changes) {
    const bool had = mine.state.record.has_value();
    if (!had && joined.record.has_value()) {
      ++report_->added;
    } else if (had && !joined.record.has_value()) {
      ++report_->removed;
    } else if (theirs.record.has_value() && !joined.record.has_value()) {
      ++report_->stayed_gone;
    } else {
      ++(changes ? report_->changed : report_->unchanged);
    }
  }

  void Put(Table table, const std::string& row, std::string value) {
    batch_bytes_ += row.size() + value.size();
    batch_.Put(table, row, std::move(value));
  }

  absl::Status Flush(Sync sync) {
    EPIC_RETURN_IF_ERROR(tables_->Write(batch_, sync));
    batch_ = WriteBatch();
    batch_bytes_ = 0;
    return absl::OkStatus();
  }

  // Of contexts that are gone now. What a crash leaves of them the next start of the node drops: their
  // entries have no record.
  absl::Status DropObjects() {
    if (removed_.empty()) return absl::OkStatus();
    absl::Status failed;
    EPIC_RETURN_IF_ERROR(tables_->Scan(Table::kObjects, [&](std::string_view row, std::string_view value) {
      const auto key = ParseObjectContextKey(row);
      if (!key.ok() || !removed_.contains(RowKey(*key))) return true;
      batch_.Delete(Table::kObjects, std::string(row));
      if (const auto entry = DecodeObjectEntry(AsBytes(value)); entry.ok() && entry->extents.empty()) {
        batch_.DeleteRange(Table::kSlabs, SlabRowKey(entry->number, 0, 0), SlabEndKey(entry->number));
      }
      if (batch_.changes().size() >= kBatchChanges) failed = Flush(Sync::kNo);
      return failed.ok();
    }));
    return failed;
  }

  TableStore* const tables_;
  RestoreReport* const report_;
  WriteBatch batch_;
  uint64_t batch_bytes_ = 0;
  bool any_gone_ = false;
  std::set<std::string> removed_;  // keys of contexts whose record went
};

absl::Status AfterSome(const absl::Status& status, uint64_t done) {
  if (done == 0) return status;
  return absl::Status(status.code(), ToAbsl(MessageOf(status) + " (after some " + std::to_string(done) +
                                            " contexts; do the restore again for all of them)"));
}

}  // namespace

absl::StatusOr<RestoreReport> JoinBackup(BackupReader* backup, TableStore* tables,
                                         const BackupProgress& progress) {
  RestoreReport report;
  Restore restore(tables, &report);
  uint64_t done = 0;
  while (true) {
    const auto entry = backup->Next();
    if (!entry.ok()) return AfterSome(entry.status(), done);
    if (!entry->has_value()) break;
    if (absl::Status status = restore.Add(**entry); !status.ok()) return AfterSome(status, done);
    if (++done % kNoteEvery == 0 && progress != nullptr) progress(done);
  }
  if (absl::Status status = restore.Finish(); !status.ok()) return AfterSome(status, done);
  report.summary = {.header = backup->header(), .counts = backup->counts(), .bytes = backup->bytes()};
  return report;
}

absl::StatusOr<RestoreReport> RestoreBackup(const std::string& file, const std::string& dir,
                                            const Clock& clock, const BackupProgress& progress) {
  EPIC_RETURN_IF_ERROR(VerifyBackup(file).status());
  std::error_code error;
  const bool was_there = std::filesystem::exists(dir + "/rocksdb/CURRENT", error);
  EPIC_ASSIGN_OR_RETURN(const auto tables, OpenRocksDbTables({.dir = dir}));
  EPIC_ASSIGN_OR_RETURN(const auto backup, BackupReader::Open(file));
  EPIC_ASSIGN_OR_RETURN(RestoreReport report, JoinBackup(backup.get(), tables.get(), progress));
  report.may_revive =
      was_there && backup->header().created_at_ms < clock.UnixMs() - kTombstoneLifeMs && report.added > 0;
  return report;
}

}  // namespace epic::kv_store
