// What the command line may do with a store that is stopped. It reaches services through services/node only;
// this lists what it gets of services/kv_store/tools, where each function is told.
#ifndef EPIC_SERVICES_NODE_STORE_TOOLS_H_
#define EPIC_SERVICES_NODE_STORE_TOOLS_H_

#include "services/kv_store/tools/backup.h"
#include "services/kv_store/tools/hex.h"
#include "services/kv_store/tools/isolate.h"
#include "services/kv_store/tools/store_check.h"
#include "services/kv_store/tools/store_dump.h"
#include "services/kv_store/tools/store_repair.h"

namespace epic::store_tools {

using kv_store::Hex;
using kv_store::RunStatusIsolated;

using kv_store::CheckOptions;
using kv_store::CheckStore;
using kv_store::InfoOf;
using kv_store::RepairStore;
using kv_store::StoreCounts;
using kv_store::StoreFault;
using kv_store::StoreReport;

using kv_store::Counts;
using kv_store::DumpedContext;
using kv_store::DumpOptions;
using kv_store::DumpStore;
using kv_store::ObjectEntry;
using kv_store::RemovalCause;
using kv_store::SlabExtent;
using kv_store::Tombstone;

using kv_store::BackupOptions;
using kv_store::BackupReport;
using kv_store::BackupSummary;
using kv_store::CreateBackup;
using kv_store::RestoreBackup;
using kv_store::RestoreReport;
using kv_store::VerifyBackup;

}  // namespace epic::store_tools

#endif  // EPIC_SERVICES_NODE_STORE_TOOLS_H_
