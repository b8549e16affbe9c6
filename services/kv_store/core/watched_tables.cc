#include "services/kv_store/core/watched_tables.h"

#include <algorithm>
#include <utility>

namespace epic::kv_store {
namespace {

bool AddsRows(const WriteBatch& batch) {
  return std::any_of(batch.changes().begin(), batch.changes().end(),
                     [](const WriteBatch::Change& change) { return change.value.has_value(); });
}

bool AddsSlabs(const WriteBatch& batch) {
  return std::any_of(batch.changes().begin(), batch.changes().end(), [](const WriteBatch::Change& change) {
    return change.table == Table::kSlabs && change.value.has_value();
  });
}

}  // namespace

WatchedTables::WatchedTables(std::unique_ptr<TableStore> inner, const Clock* clock)
    : inner_(std::move(inner)), clock_(clock) {}

StoreDisk WatchedTables::Seen() const {
  StoreDisk seen;
  seen.errors = errors_.load();
  seen.last_error_steady_ns = last_error_ns_.load();
  seen.full = full_for_rows_.load() || full_for_slabs_.load();
  return seen;
}

void WatchedTables::Note(const absl::Status& status) {
  if (status.ok()) return;
  last_error_ns_ = clock_->SteadyNs();  // before the count: who sees the count sees a time
  ++errors_;
}

void WatchedTables::NoteWrite(const absl::Status& status, bool proves_room, std::atomic<bool>* full) {
  Note(status);
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    *full = true;
  } else if (status.ok() && proves_room) {
    *full = false;
  }
}

absl::Status WatchedTables::Write(const WriteBatch& batch, Sync sync) {
  absl::Status status = inner_->Write(batch, sync);
  NoteWrite(status, AddsRows(batch), AddsSlabs(batch) ? &full_for_slabs_ : &full_for_rows_);
  return status;
}

absl::Status WatchedTables::PutUnlogged(Table table, std::string_view key, ByteSpan value) {
  absl::Status status = inner_->PutUnlogged(table, key, value);
  NoteWrite(status, /*proves_room=*/false, &full_for_slabs_);
  return status;
}

absl::Status WatchedTables::Flush(Table table) {
  absl::Status status = inner_->Flush(table);
  NoteWrite(status, /*proves_room=*/true, &full_for_slabs_);
  return status;
}

absl::StatusOr<std::optional<std::string>> WatchedTables::Get(Table table, std::string_view key) {
  auto value = inner_->Get(table, key);
  Note(value.status());
  return value;
}

absl::StatusOr<std::optional<uint64_t>> WatchedTables::ReadInto(Table table, std::string_view key,
                                                                MutableByteSpan out) {
  auto size = inner_->ReadInto(table, key, out);
  Note(size.status());
  return size;
}

absl::Status WatchedTables::Scan(
    Table table, const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  absl::Status status = inner_->Scan(table, visit);
  Note(status);
  return status;
}

absl::Status WatchedTables::Reclaim() {
  absl::Status status = inner_->Reclaim();
  Note(status);
  return status;
}

}  // namespace epic::kv_store
