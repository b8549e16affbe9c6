// The store of `epic serve`: records and objects in host memory, and under one directory in RocksDB and in
// extent files. The way in for services/node; what it does is told in core/store_core.h.
#ifndef EPIC_SERVICES_KV_STORE_EMBEDDED_STORE_H_
#define EPIC_SERVICES_KV_STORE_EMBEDDED_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {

// Where slabs of new objects go. Objects of either kind are read, whatever is chosen.
enum class SlabBackEnd : uint8_t { kExtents, kBlobFiles };

struct EmbeddedStoreOptions {
  std::string dir;     // made if it does not exist; belongs to one process at a time
  StoreOptions store;  // memory, disk, clock; make_slabs, scrubber and warm_up are set here
  SlabBackEnd slabs = SlabBackEnd::kExtents;
  // At most so much of the disk is re-read to check what nobody asks for; 0: nothing.
  uint64_t scrub_bytes_per_s = uint64_t{8} << 20;
  // At most so much is read to fill memory again after a start, up to half of it; 0: nothing.
  uint64_t warm_up_bytes_per_s = uint64_t{128} << 20;
};

class EmbeddedStore {
 public:
  // Opens the directory and reads its records. The store's destructor writes what is still queued.
  // Errors: FailedPrecondition when another process has the directory, PermissionDenied when it cannot be
  // made or written, DataLoss or Unimplemented when its contents are damaged or of a newer EPIC; all say what
  // to do.
  static absl::StatusOr<std::unique_ptr<KvStore>> Open(const EmbeddedStoreOptions& options);
  // The same with all that a node of its own offers to others.
  static absl::StatusOr<std::unique_ptr<StoreCore>> OpenCore(const EmbeddedStoreOptions& options);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_EMBEDDED_STORE_H_
