// Drops from a store that is stopped what a check found damaged or left over and what is no loss: objects,
// and rows that belong to nothing. Never a record, a tombstone or the token ids of a record. Blocks.
#ifndef EPIC_SERVICES_KV_STORE_TOOLS_STORE_REPAIR_H_
#define EPIC_SERVICES_KV_STORE_TOOLS_STORE_REPAIR_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "services/kv_store/tools/store_report.h"

namespace epic::kv_store {

// Returns how many of the report's faults were dropped; those of rows that have changed since are left. Opens
// the directory as a store does. Errors: FailedPrecondition when the report is not complete or another
// process uses the directory, or those of the disk: what was dropped until then stays so.
absl::StatusOr<uint64_t> RepairStore(const std::string& dir, const StoreReport& report);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_TOOLS_STORE_REPAIR_H_
