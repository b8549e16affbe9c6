#include "services/kv_store/tools/store_check.h"

#include <memory>
#include <optional>
#include <utility>

#include "common/base/crc32c.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/core/node/incarnation.h"
#include "services/kv_store/core/replica_state.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/rocksdb/stopped_tables.h"
#include "services/kv_store/tools/extent_folder.h"
#include "services/kv_store/tools/object_check.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kNoteEvery = 1024;                         // rows
constexpr std::string_view kBootCounterRow = "boot_counter";  // core/node/incarnation.h

class RecordCheck {
 public:
  RecordCheck(StoppedTables* tables, StoreReport* report, std::function<void()> note)
      : tables_(tables), report_(report), note_(std::move(note)) {}

  void Run() {
    Scan(Table::kRecords, [this](auto row, auto value) { CheckRecord(row, value); });
    Scan(Table::kTokens, [this](auto row, auto value) { CheckTokens(row, value); });
    Scan(Table::kTombstones, [this](auto row, auto value) { CheckTombstone(row, value); });
    Scan(Table::kNode, [this](auto row, auto value) { CheckNodeRow(row, value); });
  }

 private:
  template <typename Fn>
  void Scan(Table table, Fn visit) {
    std::string last;
    const absl::Status status = tables_->Scan(table, [&](std::string_view row, std::string_view value) {
      visit(row, value);
      last = std::string(row);
      if (++rows_ % kNoteEvery == 0) note_();
      return true;
    });
    if (status.ok()) return;
    report_->complete = false;
    Add(FaultKind::kUnreadableRows, table, last, "the rows behind this one: " + MessageOf(status));
  }

  void Add(FaultKind kind, Table table, std::string_view row, std::string detail, uint32_t crc = 0) {
    report_->Add({.kind = kind,
                  .table = std::string(TableName(table)),
                  .key = std::string(row),
                  .detail = std::move(detail),
                  .crc = crc});
  }

  void CheckRecord(std::string_view row, std::string_view value) {
    ++report_->counts.records;
    const auto record = DecodeRecord(AsBytes(value));
    if (!record.ok()) {
      const bool newer = absl::IsUnimplemented(record.status());
      return Add(newer ? FaultKind::kNewerRecord : FaultKind::kDamagedRecord, Table::kRecords, row,
                 MessageOf(record.status()));
    }
    const ContextKey key{record->tenant, record->id};
    if (RowKey(key) != row) {
      return Add(FaultKind::kDamagedRecord, Table::kRecords, row, "the record is that of another key");
    }
    if (record->hidden) ++report_->counts.hidden_records;
    const auto removal = tables_->Get(Table::kTombstones, row);
    if (removal.ok() && removal->has_value()) {
      const auto tombstone = DecodeTombstone(AsBytes(**removal));
      if (tombstone.ok() && !Counts(*record, *tombstone)) {
        Add(FaultKind::kRemovedRecord, Table::kRecords, row, "its tombstone says that it is gone");
      }
    }
    CheckTokensOf(*record, row);
  }

  void CheckTokensOf(const ContextRecord& record, std::string_view row) {
    const auto stored = tables_->Get(Table::kTokens, row);
    if (!stored.ok()) return;  // told by the scan of that table
    if (!stored->has_value()) {
      return Add(FaultKind::kMissingTokens, Table::kRecords, row, "the record has no token ids");
    }
    const auto tokens = DecodeTokens(AsBytes(**stored));
    if (!tokens.ok()) return;  // the same
    if (tokens->size() != record.token_count) {
      Add(FaultKind::kDamagedTokens, Table::kTokens, row, "not as many as the record says");
    } else if (CacheId::Of(record.tenant, record.model_identity, *tokens) != record.id) {
      Add(FaultKind::kDamagedTokens, Table::kTokens, row, "they do not hash to the Cache ID");
    }
  }

  void CheckTokens(std::string_view row, std::string_view value) {
    ++report_->counts.token_rows;
    const auto record = tables_->Get(Table::kRecords, row);
    if (record.ok() && !record->has_value()) {
      return Add(FaultKind::kTokensWithoutRecord, Table::kTokens, row, "there is no such record",
                 Crc32c(0, AsBytes(value)));
    }
    const auto tokens = DecodeTokens(AsBytes(value));
    if (tokens.ok()) {
      report_->counts.tokens += tokens->size();
    } else {
      Add(FaultKind::kDamagedTokens, Table::kTokens, row, MessageOf(tokens.status()));
    }
  }

  void CheckTombstone(std::string_view row, std::string_view value) {
    ++report_->counts.tombstones;
    const auto tombstone = DecodeTombstone(AsBytes(value));
    if (!tombstone.ok()) {
      const bool newer = absl::IsUnimplemented(tombstone.status());
      return Add(newer ? FaultKind::kNewerTombstone : FaultKind::kDamagedTombstone, Table::kTombstones, row,
                 MessageOf(tombstone.status()));
    }
    if (!ParseContextKey(row).ok()) {
      Add(FaultKind::kDamagedTombstone, Table::kTombstones, row, "its key is that of no context");
    }
  }

  // Rows of other names are those of a later version.
  void CheckNodeRow(std::string_view row, std::string_view value) {
    ++report_->counts.node_rows;
    if (row != kBootCounterRow) return;
    const auto boots = DecodeBootCounter(AsBytes(value));
    if (!boots.ok()) Add(FaultKind::kDamagedNodeRow, Table::kNode, row, MessageOf(boots.status()));
  }

  StoppedTables* const tables_;
  StoreReport* const report_;
  const std::function<void()> note_;
  uint64_t rows_ = 0;
};

void CheckExtentFiles(const ExtentFolder& extents, StoreReport* report) {
  for (const auto& [number, file] : extents.files()) {
    ++report->counts.extent_files;
    report->counts.extent_bytes += file.pages * kSlabPageBytes;
    if (file.header.ok()) continue;
    report->Add({.kind = FaultKind::kDamagedExtentFile,
                 .table = "extents",
                 .key = ExtentFolder::NameOf(number),
                 .detail = MessageOf(file.header)});
  }
}

void CannotRead(FaultKind kind, std::string_view table, const absl::Status& status, StoreReport* report) {
  report->complete = false;
  report->Add({.kind = kind, .table = std::string(table), .key = {}, .detail = MessageOf(status)});
}

}  // namespace

absl::StatusOr<StoreReport> CheckStore(const std::string& dir, const CheckOptions& options) {
  StoreReport report{.counts = {}, .faults = {}, .deep = options.deep};
  const auto note = [&] {
    if (options.progress != nullptr) options.progress(report.counts);
  };
  const auto tables = StoppedTables::Open(dir);
  if (!tables.ok() && !absl::IsDataLoss(tables.status())) return tables.status();
  const auto extents = ExtentFolder::Open(dir + "/slabs");
  if (extents.ok()) {
    CheckExtentFiles(*extents, &report);
  } else {
    CannotRead(FaultKind::kUnreadableExtents, "extents", extents.status(), &report);
  }
  if (!tables.ok()) {
    CannotRead(FaultKind::kUnreadableTables, "log", tables.status(), &report);
    return report;
  }
  if (absl::Status log = (*tables)->LogState(); !log.ok()) {
    CannotRead(FaultKind::kUnreadableTables, "log", log, &report);
  }
  report.counts.table_bytes = (*tables)->PhysicalBytes();
  RecordCheck(tables->get(), &report, note).Run();
  ObjectCheck(tables->get(), extents.ok() ? &*extents : nullptr, options.deep, &report, note).Run();
  note();
  return report;
}

}  // namespace epic::kv_store
