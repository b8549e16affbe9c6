#include "services/kv_store/core/watched_tables.h"

#include <algorithm>
#include <utility>

namespace epic::kv_store {
namespace {

using Kind = DiskWatch::Kind;

constexpr auto kRows = DiskWatch::Space::kRows;
constexpr auto kSlabs = DiskWatch::Space::kSlabs;

bool AddsRows(const WriteBatch& batch) {
  return std::any_of(batch.changes().begin(), batch.changes().end(),
                     [](const WriteBatch::Change& change) { return change.value.has_value(); });
}

bool AddsSlabs(const WriteBatch& batch) {
  return std::any_of(batch.changes().begin(), batch.changes().end(), [](const WriteBatch::Change& change) {
    return change.table == Table::kSlabs && change.value.has_value();
  });
}

uint64_t BytesOf(const WriteBatch& batch) {
  uint64_t bytes = 0;
  for (const WriteBatch::Change& change : batch.changes()) {
    if (change.value.has_value()) bytes += change.value->size();
  }
  return bytes;
}

}  // namespace

WatchedTables::WatchedTables(std::unique_ptr<TableStore> inner, DiskWatch* watch)
    : inner_(std::move(inner)), watch_(watch) {
  inner_->SetErrorSink([watch](const absl::Status& status) { watch->Note(status); });
}

absl::Status WatchedTables::Write(const WriteBatch& batch, Sync sync) {
  const DiskWatch::Call call(watch_, sync == Sync::kYes ? Kind::kSync : Kind::kBuffered, BytesOf(batch));
  absl::Status status = inner_->Write(batch, sync);
  watch_->NoteWrite(status, AddsRows(batch), AddsSlabs(batch) ? kSlabs : kRows);
  return status;
}

absl::Status WatchedTables::PutUnlogged(Table table, std::string_view key, ByteSpan value) {
  const DiskWatch::Call call(watch_, Kind::kBuffered, value.size());
  unflushed_bytes_ += value.size();
  absl::Status status = inner_->PutUnlogged(table, key, value);
  watch_->NoteWrite(status, /*proves_room=*/false, kSlabs);
  return status;
}

absl::Status WatchedTables::Flush(Table table) {
  const DiskWatch::Call call(watch_, Kind::kSync, unflushed_bytes_.exchange(0));
  absl::Status status = inner_->Flush(table);
  watch_->NoteWrite(status, /*proves_room=*/true, kSlabs);
  return status;
}

absl::StatusOr<std::optional<std::string>> WatchedTables::Get(Table table, std::string_view key) {
  const DiskWatch::Call call(watch_, Kind::kCachedRead, 0);
  auto value = inner_->Get(table, key);
  watch_->Note(value.status());
  return value;
}

absl::StatusOr<std::optional<uint64_t>> WatchedTables::ReadInto(Table table, std::string_view key,
                                                                MutableByteSpan out) {
  const DiskWatch::Call call(watch_, Kind::kCachedRead, out.size());
  auto size = inner_->ReadInto(table, key, out);
  watch_->Note(size.status());
  return size;
}

absl::Status WatchedTables::Scan(
    Table table, const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  absl::Status status = inner_->Scan(table, visit);
  watch_->Note(status);
  return status;
}

absl::Status WatchedTables::ScanFrom(
    Table table, std::string_view begin,
    const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  absl::Status status = inner_->ScanFrom(table, begin, visit);
  watch_->Note(status);
  return status;
}

absl::Status WatchedTables::Reclaim() {
  absl::Status status = inner_->Reclaim();
  watch_->Note(status);
  return status;
}

}  // namespace epic::kv_store
