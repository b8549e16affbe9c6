// The tables of a store that is stopped, for reading only: no byte of the directory changes. While they are
// open no store opens the directory. A TableStore whose writes are refused; thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_ROCKSDB_STOPPED_TABLES_H_
#define EPIC_SERVICES_KV_STORE_ROCKSDB_STOPPED_TABLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

class StoppedTables : public TableStore {
 public:
  // Errors: NotFound when the directory holds no store, FailedPrecondition when another process uses it,
  // PermissionDenied, DataLoss when it is damaged so that nothing can be read, or those of TableStore.
  static absl::StatusOr<std::unique_ptr<StoppedTables>> Open(const std::string& dir);

  // DataLoss when the log is damaged before its end: the changes behind that place are not in these tables,
  // and a store that opens the directory drops them.
  virtual absl::Status LogState() const = 0;
  // The first key of a table from `from` on; nullopt: there is none.
  virtual absl::StatusOr<std::optional<std::string>> FirstKeyFrom(Table table, std::string_view from) = 0;

  absl::Status Write(const WriteBatch& batch, Sync sync) final;
  absl::Status PutUnlogged(Table table, std::string_view key, ByteSpan value) final;
  absl::Status Flush(Table table) final;
  absl::Status Reclaim() final;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_ROCKSDB_STOPPED_TABLES_H_
