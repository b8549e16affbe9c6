#include "services/kv_store/core/memory_table_store.h"

#include <algorithm>

namespace epic::kv_store {

void MemoryDisk::Apply(const WriteBatch& batch, Tables* tables) {
  for (const WriteBatch::Change& change : batch.changes()) {
    Rows& rows = (*tables)[static_cast<size_t>(change.table)];
    if (change.value.has_value()) {
      rows[change.key] = *change.value;
    } else if (change.end.has_value()) {
      rows.erase(rows.lower_bound(change.key), rows.lower_bound(*change.end));
    } else {
      rows.erase(change.key);
    }
  }
}

void MemoryDisk::Crash(Rng* rng) {
  MutexLock lock(&mu_);
  const size_t survivors = rng->Below(unsynced_.size() + 1);
  for (size_t i = 0; i < survivors; ++i) Apply(unsynced_[i], &durable_);
  for (size_t table = 0; table < kTables; ++table) {
    for (auto& [key, value] : unlogged_[table]) {
      if (rng->Below(2) == 0) durable_[table][key] = std::move(value);
    }
    unlogged_[table].clear();
  }
  unsynced_.clear();
  current_ = durable_;
}

absl::Status MemoryTableStore::Write(const WriteBatch& batch, Sync sync) {
  MutexLock lock(&disk_->mu_);
  MemoryDisk::Apply(batch, &disk_->current_);
  for (const WriteBatch::Change& change : batch.changes()) {
    auto& rows = disk_->unlogged_[static_cast<size_t>(change.table)];
    const auto begin = rows.lower_bound(change.key);
    const auto end = change.end.has_value() ? rows.lower_bound(*change.end) : rows.upper_bound(change.key);
    rows.erase(begin, end);
  }
  disk_->unsynced_.push_back(batch);
  if (sync == Sync::kYes) {
    for (const WriteBatch& safe : disk_->unsynced_) MemoryDisk::Apply(safe, &disk_->durable_);
    disk_->unsynced_.clear();
  }
  return absl::OkStatus();
}

absl::Status MemoryTableStore::PutUnlogged(Table table, std::string_view key, ByteSpan value) {
  MutexLock lock(&disk_->mu_);
  const auto index = static_cast<size_t>(table);
  disk_->current_[index][std::string(key)] = std::string(AsText(value));
  disk_->unlogged_[index][std::string(key)] = std::string(AsText(value));
  return absl::OkStatus();
}

absl::Status MemoryTableStore::Flush(Table table) {
  MutexLock lock(&disk_->mu_);
  for (const WriteBatch& safe : disk_->unsynced_) MemoryDisk::Apply(safe, &disk_->durable_);
  disk_->unsynced_.clear();
  auto& rows = disk_->unlogged_[static_cast<size_t>(table)];
  for (auto& [key, value] : rows) disk_->durable_[static_cast<size_t>(table)][key] = std::move(value);
  rows.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::string>> MemoryTableStore::Get(Table table, std::string_view key) {
  MutexLock lock(&disk_->mu_);
  const auto& rows = disk_->current_[static_cast<size_t>(table)];
  const auto row = rows.find(key);
  if (row == rows.end()) return std::nullopt;
  return row->second;
}

absl::StatusOr<std::optional<uint64_t>> MemoryTableStore::ReadInto(Table table, std::string_view key,
                                                                   MutableByteSpan out) {
  MutexLock lock(&disk_->mu_);
  const auto& rows = disk_->current_[static_cast<size_t>(table)];
  const auto row = rows.find(key);
  if (row == rows.end()) return std::nullopt;
  const std::string& value = row->second;
  if (!value.empty() && !out.empty())
    std::memcpy(out.data(), value.data(), std::min(value.size(), out.size()));
  return value.size();
}

absl::Status MemoryTableStore::Scan(Table table,
                                    const std::function<bool(std::string_view, std::string_view)>& visit) {
  return ScanFrom(table, {}, visit);
}

absl::Status MemoryTableStore::ScanFrom(
    Table table, std::string_view begin,
    const std::function<bool(std::string_view, std::string_view)>& visit) {
  MemoryDisk::Rows rows;
  {
    MutexLock lock(&disk_->mu_);
    rows = disk_->current_[static_cast<size_t>(table)];
  }
  for (auto row = rows.lower_bound(begin); row != rows.end(); ++row) {
    if (!visit(row->first, row->second)) break;
  }
  return absl::OkStatus();
}

uint64_t MemoryTableStore::PhysicalBytes() {
  MutexLock lock(&disk_->mu_);
  uint64_t bytes = 0;
  for (const auto& rows : disk_->current_) {
    for (const auto& [key, value] : rows) bytes += key.size() + value.size();
  }
  return bytes;
}

}  // namespace epic::kv_store
