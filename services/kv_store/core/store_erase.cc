// The part of StoreCore that makes what was deleted physically gone (eraser.h says when).
#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {

absl::Status StoreCore::LoadErasures() {
  const auto load = [&](std::string_view row, std::string_view) {
    if (const auto number = ParseEraseRowName(row); number.has_value()) {
      next_erasure_ = std::max(next_erasure_.load(), *number + 1);
      eraser_->Load(std::string(row));
    }
    return true;
  };
  // A row that is damaged costs an erasure that somebody no longer waits for its haste, nothing else: what
  // was deleted before a start is reclaimed some hours later.
  const absl::Status scanned = tables_->Scan(Table::kNode, load);
  return absl::IsDataLoss(scanned) ? absl::OkStatus() : scanned;
}

absl::Status StoreCore::EraseDue(const std::vector<std::string>& rows) {
  EPIC_RETURN_IF_ERROR(Erase());
  WriteBatch batch;
  for (const std::string& row : rows) batch.Delete(Table::kNode, row);
  // One that is there again after a crash costs an erasure more.
  tables_->Write(batch, Sync::kNo).IgnoreError();
  return absl::OkStatus();
}

absl::Status StoreCore::Erase() {
  deleted_since_ns_ = 0;
  absl::Status status = EraseRemoved();
  if (!status.ok()) deleted_since_ns_ = options_.clock->SteadyNs();
  return status;
}

absl::Status StoreCore::EraseRemoved() {
  // Objects of contexts that are gone may be on their way to the disk still.
  writer_->Drain();
  EPIC_RETURN_IF_ERROR(DropOrphans());
  EPIC_RETURN_IF_ERROR(tables_->Reclaim());
  if (slabs_ == nullptr) return absl::OkStatus();
  // Once for what readers and writers kept from others until now, once more for what a writer took meanwhile
  // and failed to write over.
  for (int round = 0; round < 2; ++round) {
    slabs_->AwaitUses();
    EPIC_RETURN_IF_ERROR(slabs_->Reclaim());
  }
  return absl::OkStatus();
}

}  // namespace epic::kv_store
