// Shows what a store holds and what its disk says in the process's metrics. Thread-safe: it keeps nothing.
#ifndef EPIC_COMMON_STORAGE_STORE_GAUGES_H_
#define EPIC_COMMON_STORAGE_STORE_GAUGES_H_

#include "common/metrics/metrics.h"
#include "common/storage/kv_store.h"

namespace epic {

// Sets the rows that every process with a store has. For a collector.
void ShowStore(const StoreUsage& usage, const StoreDisk& disk, Metrics* metrics);

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_STORE_GAUGES_H_
