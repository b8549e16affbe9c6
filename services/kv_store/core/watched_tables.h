// A TableStore that tells a DiskWatch what its disk refuses and how long it takes: wraps another and passes
// every call on. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_WATCHED_TABLES_H_
#define EPIC_SERVICES_KV_STORE_CORE_WATCHED_TABLES_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "services/kv_store/core/disk_watch.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

class WatchedTables final : public TableStore {
 public:
  // `watch` outlives the tables.
  WatchedTables(std::unique_ptr<TableStore> inner, DiskWatch* watch);

  absl::Status Write(const WriteBatch& batch, Sync sync) override;
  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override;
  absl::Status Flush(Table table) override;
  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override;
  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override;
  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view key, std::string_view value)>& visit) override;
  absl::Status ScanFrom(
      Table table, std::string_view begin,
      const std::function<bool(std::string_view key, std::string_view value)>& visit) override;
  uint64_t PhysicalBytes() override { return inner_->PhysicalBytes(); }
  uint64_t FreeBytes() override { return inner_->FreeBytes(); }
  absl::Status Reclaim() override;

 private:
  const std::unique_ptr<TableStore> inner_;
  DiskWatch* const watch_;
  std::atomic<uint64_t> unflushed_bytes_{0};
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_WATCHED_TABLES_H_
