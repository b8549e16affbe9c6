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

// An object whose layers are still to come.
struct OpenedObject {
  ObjectPtr object;
  std::shared_ptr<LoadProgress> progress;  // of the object
  std::vector<SlabRun> runs;               // its memory
};

// Reads the object entry of the copy; its slabs will lie in `region`. Checks row format, number, key, layout,
// and token ids against the Cache ID (of `model_identity`).
// Errors: DataLoss or InvalidArgument (damaged), Unimplemented (another format), NotFound (it is gone), or
// those of the TableStore.
absl::StatusOr<OpenedObject> OpenObject(TableStore* tables, const TenantObjectKey& key,
                                        const Digest& model_identity, const DiskCopy& copy,
                                        std::unique_ptr<ArenaRegion> region);

// Reads the slabs of an opened object, and verifies the block checksums of each layer while later ones are
// read: from then on that layer is ready. `go_on` is asked after each layer; where it returns false the
// status is Cancelled. After an error the caller owes progress->Fail. Errors: DataLoss (damaged), NotFound
// (it is gone), or those of the SlabStore.
absl::Status FillObject(SlabStore* slabs, const DiskCopy& copy, const OpenedObject& opened,
                        const std::function<bool()>& go_on);

// Both of these. Errors: theirs.
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
