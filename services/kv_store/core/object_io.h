// Reads one object from a disk, its entry from the tables and its slabs from a slab store, and verifies all
// of it on the way in. Free functions; thread-safe. Not here: writing (slab_store.h, store_objects.cc).
#ifndef EPIC_SERVICES_KV_STORE_CORE_OBJECT_IO_H_
#define EPIC_SERVICES_KV_STORE_CORE_OBJECT_IO_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/kv_store/core/object_table.h"
#include "services/kv_store/core/slab_store.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

// The slabs of an object, by layer.
std::vector<ByteSpan> SlabsOf(const HostObject& object);

// Reads object entry and slabs of the copy into `region`. Checks everything: row format, number, key, layout,
// token ids against the Cache ID (of `model_identity`), block checksums of each layer while later ones are
// read, sizes.
// Errors: DataLoss or InvalidArgument (damaged), Unimplemented (another format), NotFound (it is gone), or
// those of the TableStore and the SlabStore.
absl::StatusOr<ObjectPtr> ReadObject(TableStore* tables, SlabStore* slabs, const TenantObjectKey& key,
                                     const Digest& model_identity, const DiskCopy& copy,
                                     std::unique_ptr<ArenaRegion> region);

// Reads the copy layer by layer and checks it as ReadObject does. `pace` is called after each layer; where it
// returns false the status is Cancelled. Errors: those of ReadObject.
absl::Status VerifyObject(TableStore* tables, SlabStore* slabs, const TenantObjectKey& key,
                          const Digest& model_identity, const DiskCopy& copy,
                          const std::function<bool(uint64_t bytes)>& pace);

// The miss that a failed ReadObject is.
MissCause CauseOf(const absl::Status& status);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_OBJECT_IO_H_
