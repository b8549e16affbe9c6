// Whether the files of one table hold what was written to them. RocksDB 7.8 ends an iteration at a damaged
// block of a deeper level as if there were no more rows, and with an OK status: whoever must see all rows
// asks here too. Free function; any thread.
#ifndef EPIC_SERVICES_KV_STORE_ROCKSDB_VERIFY_FILES_H_
#define EPIC_SERVICES_KV_STORE_ROCKSDB_VERIFY_FILES_H_

#include "rocksdb/db.h"

namespace epic::kv_store {

// Reads every block of every file of the family and compares its checksum; blob files are not read. Errors:
// Corruption with the file, and those of reading.
rocksdb::Status VerifyFiles(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_ROCKSDB_VERIFY_FILES_H_
