#include "common/status/rocksdb_status.h"

#include <string>

#include "common/status/error.h"

namespace epic {

absl::Status FromRocksDb(const rocksdb::Status& status) {
  using Code = rocksdb::Status::Code;
  if (status.ok()) return absl::OkStatus();
  if (status.IsNoSpace() || status.subcode() == rocksdb::Status::SubCode::kSpaceLimit) {
    return Error(ErrorCode::kStorageFull, "the disk of the store is full; free space or delete contexts");
  }
  const std::string message = "store: " + status.ToString();
  switch (status.code()) {
    case Code::kCorruption:
      return absl::DataLossError(message);
    case Code::kNotFound:
      return absl::NotFoundError(message);
    case Code::kInvalidArgument:
    case Code::kNotSupported:
    case Code::kMergeInProgress:
    case Code::kColumnFamilyDropped:
    case Code::kCompactionTooLarge:
      return absl::InternalError(message);
    case Code::kShutdownInProgress:
    case Code::kAborted:
      return absl::CancelledError(message);
    default:
      return absl::UnavailableError(message);
  }
}

}  // namespace epic
