// TableStore on RocksDB: one column family per table. Rows go through the write-ahead log, synced where asked
// (concurrent syncs are grouped by RocksDB). Slabs bypass the log; they go to blob files, one or more per
// Flush, so that a blob file never mixes objects when its writer flushes after each, and deleting an object
// frees whole files. RocksDB's checksums guard rows; those of slabs are left to the callers, who verify
// blocks of their own.
//
// An error that stops RocksDB's writes, such as a failed sync of its log, is returned to whom it befell.
// Until a later write finds that the disk takes one, reads go on and writes are refused; then the database is
// closed and opened again, and holds exactly what readers were shown before: a write that failed is undone
// although it may be in the log, one that was taken is there although it was not synced. What had bypassed
// the log is lost until its Flush, which says so. A process that dies before that leaves what any crash does.
// Calls wait while it is opened; if that fails, reads are refused too until it succeeds.
//
// Thread-safe; what Scan visits must not call back.
#ifndef EPIC_SERVICES_KV_STORE_ROCKSDB_ROCKSDB_TABLE_STORE_H_
#define EPIC_SERVICES_KV_STORE_ROCKSDB_ROCKSDB_TABLE_STORE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "services/kv_store/core/table_store.h"

namespace rocksdb {
class Env;
}  // namespace rocksdb

namespace epic::kv_store {

struct RocksDbOptions {
  std::string dir;                          // made if it does not exist
  rocksdb::Env* env = nullptr;              // outlives the store; nullptr: the system's
  const Clock* clock = SystemClock::Get();  // outlives the store; for the time between attempts to go on
};

// The name of a table on disk: its column family.
std::string_view TableName(Table table);

// Errors: FailedPrecondition when another process (or store) has the directory, PermissionDenied when it
// cannot be made or written, DataLoss when its contents are damaged, or those of TableStore. Messages name
// the directory and what to do.
absl::StatusOr<std::unique_ptr<TableStore>> OpenRocksDbTables(const RocksDbOptions& options);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_ROCKSDB_ROCKSDB_TABLE_STORE_H_
