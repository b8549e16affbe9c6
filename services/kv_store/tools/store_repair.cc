#include "services/kv_store/tools/store_repair.h"

#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "common/base/crc32c.h"
#include "common/status/status_macros.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"

namespace epic::kv_store {
namespace {

constexpr size_t kSlabKeyBytes = 16;
constexpr uint64_t kNoNumber = std::numeric_limits<uint64_t>::max();

uint64_t NumberIn(const std::string& slab_row) {
  if (slab_row.size() != kSlabKeyBytes) return kNoNumber;
  uint64_t number = 0;
  for (size_t at = 0; at < sizeof number; ++at) number = number << 8 | static_cast<uint8_t>(slab_row[at]);
  return number;
}

class Repair {
 public:
  explicit Repair(TableStore* tables) : tables_(tables) {}

  absl::StatusOr<uint64_t> Run(const StoreReport& report) {
    EPIC_RETURN_IF_ERROR(tables_->Scan(Table::kObjects, [this](std::string_view, std::string_view value) {
      const auto entry = DecodeObjectEntry(AsBytes(value));
      if (entry.ok()) numbers_.insert(entry->number);
      return true;
    }));
    for (const StoreFault& fault : report.faults) {
      if (InfoOf(fault.kind).can_be_dropped) EPIC_RETURN_IF_ERROR(Drop(fault));
    }
    EPIC_RETURN_IF_ERROR(tables_->Write({}, Sync::kYes));
    return dropped_;
  }

 private:
  absl::Status Drop(const StoreFault& fault) {
    WriteBatch batch;
    if (fault.kind == FaultKind::kSlabsWithoutObject) {
      AddSlabs(fault.key, &batch);
    } else if (fault.kind == FaultKind::kTokensWithoutRecord) {
      EPIC_ASSIGN_OR_RETURN(const bool same, IsSame(Table::kTokens, fault));
      EPIC_ASSIGN_OR_RETURN(const auto record, tables_->Get(Table::kRecords, fault.key));
      if (same && !record.has_value()) batch.Delete(Table::kTokens, fault.key);
    } else {
      EPIC_RETURN_IF_ERROR(AddObject(fault, &batch));
    }
    if (batch.empty()) return absl::OkStatus();
    EPIC_RETURN_IF_ERROR(tables_->Write(batch, Sync::kNo));
    ++dropped_;
    return absl::OkStatus();
  }

  absl::StatusOr<bool> IsSame(Table table, const StoreFault& fault) {
    EPIC_ASSIGN_OR_RETURN(const auto value, tables_->Get(table, fault.key));
    return value.has_value() && Crc32c(0, AsBytes(*value)) == fault.crc;
  }

  void AddSlabs(const std::string& row, WriteBatch* batch) {
    const uint64_t number = NumberIn(row);
    if (number == kNoNumber) {
      batch->Delete(Table::kSlabs, row);
    } else if (!numbers_.contains(number)) {
      batch->DeleteRange(Table::kSlabs, SlabRowKey(number, 0, 0), SlabEndKey(number));
    }
  }

  absl::Status AddObject(const StoreFault& fault, WriteBatch* batch) {
    EPIC_ASSIGN_OR_RETURN(const auto value, tables_->Get(Table::kObjects, fault.key));
    if (!value.has_value() || Crc32c(0, AsBytes(*value)) != fault.crc) return absl::OkStatus();
    batch->Delete(Table::kObjects, fault.key);
    const auto entry = DecodeObjectEntry(AsBytes(*value));
    if (!entry.ok()) return absl::OkStatus();
    // Slabs in extents are free once no entry names them. Rows may be those of another entry, where two have
    // one number.
    const auto of_this_number = numbers_.find(entry->number);
    if (of_this_number != numbers_.end()) numbers_.erase(of_this_number);
    if (entry->extents.empty() && !numbers_.contains(entry->number)) {
      batch->DeleteRange(Table::kSlabs, SlabRowKey(entry->number, 0, 0), SlabEndKey(entry->number));
    }
    return absl::OkStatus();
  }

  TableStore* const tables_;
  std::multiset<uint64_t> numbers_;  // of the entries that are there
  uint64_t dropped_ = 0;
};

}  // namespace

absl::StatusOr<uint64_t> RepairStore(const std::string& dir, const StoreReport& report) {
  if (!report.complete) {
    return absl::FailedPreconditionError(
        "not all of the store can be read, so that nothing is dropped: restore a backup into an empty "
        "directory, or drop nothing and start the node");
  }
  EPIC_ASSIGN_OR_RETURN(const auto tables, OpenRocksDbTables({.dir = dir}));
  return Repair(tables.get()).Run(report);
}

}  // namespace epic::kv_store
