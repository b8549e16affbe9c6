// The one place that turns a rocksdb::Status into ours. For back-ends on RocksDB only: the header includes
// it.
#ifndef EPIC_COMMON_STATUS_ROCKSDB_STATUS_H_
#define EPIC_COMMON_STATUS_ROCKSDB_STATUS_H_

#include "absl/status/status.h"
#include "rocksdb/status.h"

namespace epic {

// OK stays OK. No space (of the disk or of a quota) becomes ResourceExhausted with kStorageFull, corruption
// DataLoss, not found NotFound, all other failures Unavailable (may pass), Internal (our own mistake) or
// Cancelled (shutting down). The message keeps RocksDB's words.
absl::Status FromRocksDb(const rocksdb::Status& status);

}  // namespace epic

#endif  // EPIC_COMMON_STATUS_ROCKSDB_STATUS_H_
