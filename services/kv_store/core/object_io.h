// Moves one object between a buffer and the tables of a disk, and verifies all of it on the way in. Free
// functions; thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_CORE_OBJECT_IO_H_
#define EPIC_SERVICES_KV_STORE_CORE_OBJECT_IO_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/kv_store/core/object_table.h"
#include "services/kv_store/core/table_store.h"

namespace epic::kv_store {

// Adds the slabs to `batch` as rows of object `number`.
void AddSlabs(uint64_t number, const HostObject& object, WriteBatch* batch);
// Writes the slabs as rows of object `number` and makes them durable. They are orphans until an object entry
// names the number. Errors: those of the TableStore.
absl::Status WriteSlabs(TableStore* tables, uint64_t number, const HostObject& object);

// Reads object entry and slabs of the copy into `buffer`. Checks everything: row format, number, key, layout,
// token ids against the Cache ID (of `model_identity`), block checksums, row sizes.
// Errors: DataLoss or InvalidArgument (damaged), Unimplemented (another format), NotFound (rows are gone), or
// those of the TableStore.
absl::StatusOr<ObjectPtr> ReadObject(TableStore* tables, const TenantObjectKey& key,
                                     const Digest& model_identity, const DiskCopy& copy,
                                     std::unique_ptr<HostBuffer> buffer);

// The miss that a failed ReadObject is.
MissCause CauseOf(const absl::Status& status);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_OBJECT_IO_H_
