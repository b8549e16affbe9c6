#include "services/kv_store/embedded_store.h"

#include <utility>

#include "common/status/status_macros.h"
#include "services/kv_store/rocksdb/rocksdb_table_store.h"

namespace epic::kv_store {

absl::StatusOr<std::unique_ptr<KvStore>> EmbeddedStore::Open(const EmbeddedStoreOptions& options) {
  EPIC_ASSIGN_OR_RETURN(std::unique_ptr<TableStore> tables, OpenRocksDbTables({.dir = options.dir}));
  EPIC_ASSIGN_OR_RETURN(std::unique_ptr<KvStore> store, StoreCore::Open(std::move(tables), options.store));
  return store;
}

}  // namespace epic::kv_store
