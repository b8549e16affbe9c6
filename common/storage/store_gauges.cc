#include "common/storage/store_gauges.h"

#include <cstdint>
#include <utility>

namespace epic {

void ShowStore(const StoreUsage& usage, const StoreDisk& disk, Metrics* metrics) {
  const std::pair<MetricId, uint64_t> now[] = {
      {MetricId::kStoreContexts, usage.contexts},
      {MetricId::kStoreObjectsInMemory, usage.objects_in_memory},
      {MetricId::kStoreMemoryBytes, usage.memory_bytes},
      {MetricId::kStoreMemoryCapacityBytes, usage.memory_capacity_bytes},
      {MetricId::kStoreMemoryLargestHoleBytes, usage.memory_largest_hole_bytes},
      {MetricId::kStoreMemoryHeldBytes, usage.memory_held_bytes},
      {MetricId::kStoreMemoryQuarantinedBytes, usage.memory_quarantined_bytes},
      {MetricId::kStoreLeasedObjects, usage.leased_objects},
      {MetricId::kStoreDiskBytes, usage.disk_bytes},
      {MetricId::kStoreReservations, usage.reservations},
      {MetricId::kStoreDiskFull, disk.full ? 1 : 0},
      {MetricId::kStoreDiskSlow, disk.slow ? 1 : 0},
  };
  metrics->GetGauge(MetricId::kStoreDiskWaitSeconds).Set(static_cast<double>(disk.wait_ns) / 1e9);
  for (const auto& [id, value] : now) metrics->GetGauge(id).Set(static_cast<double>(value));
  metrics->GetCounter(MetricId::kStoreDiskErrorsTotal).CatchUp(disk.errors);
  metrics->GetCounter(MetricId::kStoreDiskLateTotal).CatchUp(disk.late);
  metrics->GetCounter(MetricId::kStoreObjectsNotWrittenTotal).CatchUp(disk.not_written);
}

}  // namespace epic
