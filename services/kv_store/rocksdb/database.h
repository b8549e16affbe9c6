// One opening of the RocksDB database under a store, from Open to its destruction. An error that stops its
// writes stops them for good: RocksDB 7.8 resumes only from some, and after it did, Flush returns before
// anything is flushed, and what a failed write left in the log may come back. Who wants to write again closes
// the database and opens it anew (rocksdb_table_store.h). Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_ROCKSDB_DATABASE_H_
#define EPIC_SERVICES_KV_STORE_ROCKSDB_DATABASE_H_

#include <memory>
#include <string>
#include <vector>

#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

class WriteStop;

class Database {
 public:
  // `env` outlives the database.
  static rocksdb::Status Open(const std::string& path, rocksdb::Env* env, std::unique_ptr<Database>* out);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  rocksdb::DB* db() { return db_.get(); }
  rocksdb::ColumnFamilyHandle* Family(Table table) const;
  // REQUIRES: `id` is the number of a table's family.
  Table TableOf(uint32_t id) const;

  // The error that stopped the writes; OK: none did.
  rocksdb::Status StoppedBy() const;

 private:
  Database(std::unique_ptr<rocksdb::DB> db, std::vector<rocksdb::ColumnFamilyHandle*> families,
           std::shared_ptr<WriteStop> stop);

  const std::unique_ptr<rocksdb::DB> db_;
  const std::vector<rocksdb::ColumnFamilyHandle*> families_;  // the default one, then one per table
  const std::shared_ptr<WriteStop> stop_;
};

// Whether files can be written and synced there, with room for what an opening of the database under `path`
// writes. Leaves nothing behind. Errors: NoSpace, and those of the disk.
rocksdb::Status ProbeDisk(const std::string& path, rocksdb::Env* env);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_ROCKSDB_DATABASE_H_
