// The half of backup.h that writes.
#include <optional>
#include <utility>

#include "common/base/absl_std.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/rocksdb/stopped_tables.h"
#include "services/kv_store/tools/backup.h"
#include "services/kv_store/tools/hex.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kNoteEvery = 1024;

class Create {
 public:
  Create(TableStore* tables, BackupWriter* writer, const BackupOptions& options, StoreReport* skipped)
      : tables_(tables), writer_(writer), options_(options), skipped_(skipped) {}

  absl::Status Run() {
    EPIC_RETURN_IF_ERROR(ScanAll(Table::kRecords, [this](std::string_view row, std::string_view value) {
      return AddLive(row, value);
    }));
    return ScanAll(Table::kTombstones,
                   [this](std::string_view row, std::string_view value) { return AddGone(row, value); });
  }

 private:
  template <typename Fn>
  absl::Status ScanAll(Table table, Fn visit) {
    absl::Status failed;
    EPIC_RETURN_IF_ERROR(tables_->Scan(table, [&](std::string_view row, std::string_view value) {
      failed = visit(row, value);
      if (++rows_ % kNoteEvery == 0 && options_.progress != nullptr) options_.progress(rows_);
      return failed.ok();
    }));
    return failed;
  }

  // What the entry of a row would be; nullopt: none, its tombstone removes it. A fault of the row is noted in
  // `fault`, and the status says so; other errors are those of the disk.
  absl::StatusOr<std::optional<BackupEntry>> EntryOf(std::string_view row, std::string_view value,
                                                     StoreFault* fault) {
    const auto bad = [&](FaultKind kind, Table table, const absl::Status& cause) {
      *fault = {.kind = kind,
                .table = std::string(TableName(table)),
                .key = std::string(row),
                .detail = MessageOf(cause)};
      return cause;
    };
    auto record = DecodeRecord(AsBytes(value));
    if (!record.ok()) {
      const bool newer = absl::IsUnimplemented(record.status());
      return bad(newer ? FaultKind::kNewerRecord : FaultKind::kDamagedRecord, Table::kRecords,
                 record.status());
    }
    BackupEntry entry{.key = {record->tenant, record->id}, .state = {*std::move(record), {}}, .tokens = {}};
    if (RowKey(entry.key) != row) {
      return bad(FaultKind::kDamagedRecord, Table::kRecords,
                 absl::DataLossError("the record is that of another key"));
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> removal, tables_->Get(Table::kTombstones, row));
    if (removal.has_value()) {
      const auto tombstone = DecodeTombstone(AsBytes(*removal));
      if (!tombstone.ok()) return bad(FaultKind::kDamagedTombstone, Table::kTombstones, tombstone.status());
      if (!Counts(*entry.state.record, *tombstone)) return std::nullopt;
      entry.state.tombstone = *tombstone;
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> stored, tables_->Get(Table::kTokens, row));
    if (!stored.has_value()) {
      return bad(FaultKind::kMissingTokens, Table::kRecords, absl::DataLossError("it has no token ids"));
    }
    auto tokens = DecodeTokens(AsBytes(*stored));
    if (!tokens.ok()) return bad(FaultKind::kDamagedTokens, Table::kTokens, tokens.status());
    entry.tokens = *std::move(tokens);
    if (absl::Status status = CheckBackupEntry(entry); !status.ok()) {
      return bad(FaultKind::kDamagedTokens, Table::kTokens, status);
    }
    return entry;
  }

  absl::Status Skip(StoreFault fault) {
    if (options_.skip_damaged) {
      skipped_->Add(std::move(fault));
      return absl::OkStatus();
    }
    return absl::DataLossError(ToAbsl("a context cannot be backed up: the row " + Hex(fault.key) + " of " +
                                      fault.table + " is damaged (" + fault.detail +
                                      "); `epic store check` tells more, --skip-damaged leaves it out"));
  }

  absl::Status AddLive(std::string_view row, std::string_view value) {
    StoreFault fault;
    const auto entry = EntryOf(row, value, &fault);
    if (!entry.ok()) return fault.key.empty() ? entry.status() : Skip(std::move(fault));
    return entry->has_value() ? writer_->Add(**entry) : absl::OkStatus();
  }

  // A context whose record was left out is gone as far as this backup knows, if it has a tombstone.
  absl::Status AddGone(std::string_view row, std::string_view value) {
    auto key = ParseContextKey(row);
    const auto tombstone = DecodeTombstone(AsBytes(value));
    if (!key.ok() || !tombstone.ok()) {
      return Skip({.kind = FaultKind::kDamagedTombstone,
                   .table = std::string(TableName(Table::kTombstones)),
                   .key = std::string(row),
                   .detail = MessageOf(key.ok() ? tombstone.status() : key.status())});
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> record, tables_->Get(Table::kRecords, row));
    if (record.has_value()) {
      StoreFault fault;
      const auto entry = EntryOf(row, *record, &fault);
      if (!entry.ok() && fault.key.empty()) return entry.status();
      if (entry.ok() && entry->has_value()) return absl::OkStatus();  // written with its record
    }
    return writer_->Add({.key = *std::move(key), .state = {std::nullopt, *tombstone}, .tokens = {}});
  }

  TableStore* const tables_;
  BackupWriter* const writer_;
  const BackupOptions& options_;
  StoreReport* const skipped_;
  uint64_t rows_ = 0;
};

}  // namespace

absl::StatusOr<BackupReport> WriteBackup(TableStore* tables, std::unique_ptr<OutputFile> file,
                                         const BackupHeader& header, const BackupOptions& options) {
  BackupReport report;
  BackupWriter writer(std::move(file), header);
  EPIC_RETURN_IF_ERROR(Create(tables, &writer, options, &report.skipped).Run());
  EPIC_RETURN_IF_ERROR(writer.Finish());
  report.summary = {.header = header, .counts = writer.counts(), .bytes = writer.bytes()};
  return report;
}

absl::StatusOr<BackupReport> CreateBackup(const std::string& dir, const std::string& file, bool overwrite,
                                          const Clock& clock, const BackupOptions& options) {
  EPIC_ASSIGN_OR_RETURN(const auto tables, StoppedTables::Open(dir));
  if (absl::Status log = tables->LogState(); !log.ok() && !options.skip_damaged) {
    return absl::DataLossError(ToAbsl("the log of the store in " + dir + " is damaged (" + MessageOf(log) +
                                      "): the last changes are lost; --skip-damaged backs up the others"));
  }
  EPIC_ASSIGN_OR_RETURN(auto output, CreateOutputFile(file, overwrite));
  return WriteBackup(tables.get(), std::move(output), {.created_at_ms = clock.UnixMs()}, options);
}

}  // namespace epic::kv_store
