#include "services/kv_store/rocksdb/verify_files.h"

#include <vector>

#include "rocksdb/metadata.h"
#include "rocksdb/sst_file_reader.h"

namespace epic::kv_store {

rocksdb::Status VerifyFiles(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family) {
  // Files that go meanwhile are those of before: what replaces them was read to be written.
  rocksdb::ColumnFamilyMetaData table;
  db->GetColumnFamilyMetaData(family, &table);
  for (const rocksdb::LevelMetaData& level : table.levels) {
    if (level.level == 0) continue;  // errors there are told
    for (const rocksdb::SstFileMetaData& file : level.files) {
      rocksdb::SstFileReader reader(db->GetOptions(family));
      rocksdb::Status status = reader.Open(file.db_path + file.name);
      if (status.ok()) status = reader.VerifyChecksum();
      if (!status.ok() && !status.IsPathNotFound() && !status.IsNotFound()) return status;
    }
  }
  return rocksdb::Status::OK();
}

}  // namespace epic::kv_store
