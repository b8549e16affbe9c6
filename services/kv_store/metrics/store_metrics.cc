#include "services/kv_store/metrics/store_metrics.h"

#include <string_view>
#include <utility>

#include "common/status/error.h"

namespace epic::kv_store {
namespace {

constexpr double kUsPerSecond = 1e6;

std::string_view NameOf(MissCause cause) {
  switch (cause) {
    case MissCause::kNeverStored:
      return "never_stored";
    case MissCause::kEvicted:
      return "evicted";
    case MissCause::kDeleted:
      return "deleted";
    case MissCause::kLayoutMismatch:
      return "layout_mismatch";
    case MissCause::kChecksum:
      return "checksum";
    case MissCause::kIoError:
      return "io_error";
    case MissCause::kOldFormat:
      return "old_format";
    case MissCause::kNoMemory:
      break;
  }
  return "no_memory";
}

std::string_view ResultOf(std::string_view code) {
  if (code == "ok") return "ok";
  if (code == InfoOf(ErrorCode::kClientGone).name) return "client_gone";
  return code == InfoOf(ErrorCode::kInternal).name ? "failed" : "refused";
}

// Raises a counter to a total that somebody else counts.
void CatchUp(const Counter& counter, uint64_t total) {
  if (total > counter.Value()) counter.Add(total - counter.Value());
}

}  // namespace

void StoreMetrics::OnCall(const RpcEvent& event) const {
  metrics_->GetCounter(MetricId::kStoreCallsTotal, {event.call, ResultOf(event.code)}).Add();
  metrics_->GetHistogram(MetricId::kStoreCallSeconds, {event.call})
      .Observe(static_cast<double>(event.duration_us) / kUsPerSecond);
}

void StoreMetrics::OnLookup(bool hit, MissCause cause) const {
  metrics_->GetCounter(MetricId::kObjectLookupsTotal, {hit ? "hit" : NameOf(cause)}).Add();
}

void StoreMetrics::Show(const StoreGauges& gauges) const {
  const std::pair<MetricId, uint64_t> now[] = {
      {MetricId::kStoreContexts, gauges.usage.contexts},
      {MetricId::kStoreObjectsInMemory, gauges.usage.objects_in_memory},
      {MetricId::kStoreMemoryBytes, gauges.usage.memory_bytes},
      {MetricId::kStoreMemoryCapacityBytes, gauges.usage.memory_capacity_bytes},
      {MetricId::kStoreMemoryLargestHoleBytes, gauges.usage.memory_largest_hole_bytes},
      {MetricId::kStoreMemoryHeldBytes, gauges.usage.memory_held_bytes},
      {MetricId::kStoreMemoryQuarantinedBytes, gauges.usage.memory_quarantined_bytes},
      {MetricId::kStoreLeasedObjects, gauges.usage.leased_objects},
      {MetricId::kStoreDiskBytes, gauges.usage.disk_bytes},
      {MetricId::kStoreReservations, gauges.usage.reservations},
      {MetricId::kStoreDiskFull, gauges.disk.full ? 1 : 0},
      {MetricId::kStoreLeases, gauges.leases.held},
      {MetricId::kStoreShmConnections, gauges.shm.connections},
      {MetricId::kStoreShmLeases, gauges.shm.leases},
      {MetricId::kStoreLayerStreams, gauges.streams},
      {MetricId::kStoreAttachedCallers, gauges.attached},
  };
  for (const auto& [id, value] : now) metrics_->GetGauge(id).Set(static_cast<double>(value));
  const std::pair<MetricId, uint64_t> totals[] = {
      {MetricId::kStoreDiskErrorsTotal, gauges.disk.errors},
      {MetricId::kStoreScrubbedBytesTotal, gauges.scrubbed.bytes},
      {MetricId::kStoreLeasesGrantedTotal, gauges.leases.granted},
      {MetricId::kStoreLeasesExpiredTotal, gauges.leases.expired},
  };
  for (const auto& [id, value] : totals) CatchUp(metrics_->GetCounter(id), value);
  const std::pair<std::string_view, uint64_t> scrubbed[] = {{"right", gauges.scrubbed.objects},
                                                            {"damaged", gauges.scrubbed.damaged},
                                                            {"unreadable", gauges.scrubbed.errors}};
  for (const auto& [result, value] : scrubbed) {
    CatchUp(metrics_->GetCounter(MetricId::kStoreScrubbedObjectsTotal, {result}), value);
  }
  const std::pair<std::string_view, uint64_t> ends[] = {{"committed", gauges.reservations.committed},
                                                        {"aborted", gauges.reservations.aborted},
                                                        {"preempted", gauges.reservations.preempted},
                                                        {"failed", gauges.reservations.failed}};
  for (const auto& [end, value] : ends) {
    CatchUp(metrics_->GetCounter(MetricId::kStoreReservationsEndedTotal, {end}), value);
  }
}

}  // namespace epic::kv_store
