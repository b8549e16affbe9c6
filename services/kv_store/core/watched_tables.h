// A TableStore that keeps count of what its disk refuses: wraps another and passes every call on.
// Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_WATCHED_TABLES_H_
#define EPIC_SERVICES_KV_STORE_CORE_WATCHED_TABLES_H_

#include <atomic>
#include <memory>

#include "common/base/clock.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

class WatchedTables final : public TableStore {
 public:
  // `clock` outlives the tables.
  WatchedTables(std::unique_ptr<TableStore> inner, const Clock* clock);

  // Never blocks.
  StoreDisk Seen() const;

  absl::Status Write(const WriteBatch& batch, Sync sync) override;
  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) override;
  absl::Status Flush(Table table) override;
  absl::StatusOr<std::optional<std::string>> Get(Table table, std::string_view key) override;
  absl::StatusOr<std::optional<uint64_t>> ReadInto(Table table, std::string_view key,
                                                   MutableByteSpan out) override;
  absl::Status Scan(Table table,
                    const std::function<bool(std::string_view key, std::string_view value)>& visit) override;
  uint64_t PhysicalBytes() override { return inner_->PhysicalBytes(); }
  uint64_t FreeBytes() override { return inner_->FreeBytes(); }
  absl::Status Reclaim() override;

 private:
  void Note(const absl::Status& status);
  // Of a write: `full` is where its kind of write remembers a full disk; `proves_room`: a success clears it.
  void NoteWrite(const absl::Status& status, bool proves_room, std::atomic<bool>* full);

  const std::unique_ptr<TableStore> inner_;
  const Clock* const clock_;
  std::atomic<uint64_t> errors_{0};
  std::atomic<int64_t> last_error_ns_{0};
  // Apart, because a small row may still fit where an object does not.
  std::atomic<bool> full_for_rows_{false};
  std::atomic<bool> full_for_slabs_{false};
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_WATCHED_TABLES_H_
