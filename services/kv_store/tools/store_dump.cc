#include "services/kv_store/tools/store_dump.h"

#include <string_view>
#include <utility>

#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/record_codec.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"
#include "services/kv_store/rocksdb/stopped_tables.h"

namespace epic::kv_store {
namespace {

class Dump {
 public:
  Dump(StoppedTables* tables, const DumpOptions& options,
       const std::function<absl::Status(const DumpedContext&)>& visit,
       const std::function<void(const StoreFault&)>& fault)
      : tables_(tables), options_(options), visit_(visit), fault_(fault) {}

  absl::Status Run() {
    EPIC_RETURN_IF_ERROR(ScanAll(Table::kRecords, [this](std::string_view row, std::string_view value) {
      return ShowRecord(row, value);
    }));
    return ScanAll(Table::kTombstones,
                   [this](std::string_view row, std::string_view value) { return ShowGone(row, value); });
  }

 private:
  template <typename Fn>
  absl::Status ScanAll(Table table, Fn show) {
    absl::Status failed;
    EPIC_RETURN_IF_ERROR(tables_->Scan(table, [&](std::string_view row, std::string_view value) {
      failed = show(row, value);
      return failed.ok();
    }));
    return failed;
  }

  void Fault(FaultKind kind, Table table, std::string_view row, const absl::Status& cause) {
    fault_({.kind = kind,
            .table = std::string(TableName(table)),
            .key = std::string(row),
            .detail = MessageOf(cause)});
  }

  bool IsWanted(const ContextKey& key) const {
    return (!options_.tenant.has_value() || key.tenant == *options_.tenant) &&
           (!options_.id.has_value() || key.id == *options_.id);
  }

  absl::Status ShowRecord(std::string_view row, std::string_view value) {
    auto key = ParseContextKey(row);
    if (key.ok() && !IsWanted(*key)) return absl::OkStatus();
    auto record = DecodeRecord(AsBytes(value));
    if (!key.ok() || !record.ok()) {
      const bool newer = absl::IsUnimplemented(record.status());
      Fault(newer ? FaultKind::kNewerRecord : FaultKind::kDamagedRecord, Table::kRecords, row,
            key.ok() ? record.status() : key.status());
      return absl::OkStatus();
    }
    DumpedContext context{
        .key = *std::move(key), .state = {*std::move(record), {}}, .tokens = {}, .objects = {}};
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> removal, tables_->Get(Table::kTombstones, row));
    if (removal.has_value()) {
      const auto tombstone = DecodeTombstone(AsBytes(*removal));
      // One that cannot be read is told where those are shown.
      if (tombstone.ok()) context.state.tombstone = *tombstone;
    }
    if (options_.with_tokens) EPIC_RETURN_IF_ERROR(ReadTokens(row, &context));
    EPIC_RETURN_IF_ERROR(ReadObjects(row, &context));
    return visit_(context);
  }

  absl::Status ReadTokens(std::string_view row, DumpedContext* context) {
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> stored, tables_->Get(Table::kTokens, row));
    if (!stored.has_value()) {
      Fault(FaultKind::kMissingTokens, Table::kRecords, row, absl::NotFoundError("it has no token ids"));
      return absl::OkStatus();
    }
    auto tokens = DecodeTokens(AsBytes(*stored));
    if (tokens.ok()) {
      context->tokens = *std::move(tokens);
    } else {
      Fault(FaultKind::kDamagedTokens, Table::kTokens, row, tokens.status());
    }
    return absl::OkStatus();
  }

  absl::Status ReadObjects(std::string_view row, DumpedContext* context) {
    return tables_->ScanFrom(Table::kObjects, row, [&](std::string_view object, std::string_view value) {
      if (!object.starts_with(row)) return false;
      auto entry = DecodeObjectEntry(AsBytes(value));
      if (entry.ok()) {
        entry->head.tokens = {};
        entry->head.block_crcs = {};
        context->objects.push_back(*std::move(entry));
      } else {
        Fault(absl::IsUnimplemented(entry.status()) ? FaultKind::kOtherObject : FaultKind::kDamagedObject,
              Table::kObjects, object, entry.status());
      }
      return true;
    });
  }

  absl::Status ShowGone(std::string_view row, std::string_view value) {
    auto key = ParseContextKey(row);
    if (key.ok() && !IsWanted(*key)) return absl::OkStatus();
    const auto tombstone = DecodeTombstone(AsBytes(value));
    if (!key.ok() || !tombstone.ok()) {
      const bool newer = absl::IsUnimplemented(tombstone.status());
      Fault(newer ? FaultKind::kNewerTombstone : FaultKind::kDamagedTombstone, Table::kTombstones, row,
            key.ok() ? tombstone.status() : key.status());
      return absl::OkStatus();
    }
    EPIC_ASSIGN_OR_RETURN(const std::optional<std::string> record, tables_->Get(Table::kRecords, row));
    if (record.has_value()) return absl::OkStatus();
    return visit_({.key = *std::move(key), .state = {std::nullopt, *tombstone}, .tokens = {}, .objects = {}});
  }

  StoppedTables* const tables_;
  const DumpOptions& options_;
  const std::function<absl::Status(const DumpedContext&)>& visit_;
  const std::function<void(const StoreFault&)>& fault_;
};

}  // namespace

absl::Status DumpStore(const std::string& dir, const DumpOptions& options,
                       const std::function<absl::Status(const DumpedContext&)>& visit,
                       const std::function<void(const StoreFault&)>& fault) {
  EPIC_ASSIGN_OR_RETURN(const auto tables, StoppedTables::Open(dir));
  return Dump(tables.get(), options, visit, fault).Run();
}

}  // namespace epic::kv_store
