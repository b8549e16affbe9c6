#include "services/kv_store/metrics/store_metrics.h"

#include <string_view>
#include <utility>

#include "common/status/error.h"
#include "common/storage/names.h"
#include "common/storage/store_gauges.h"

namespace epic::kv_store {
namespace {

constexpr double kUsPerSecond = 1e6;

std::string_view ResultOf(std::string_view code) {
  if (code == "ok") return "ok";
  if (code == InfoOf(ErrorCode::kClientGone).name) return "client_gone";
  return code == InfoOf(ErrorCode::kInternal).name ? "failed" : "refused";
}

}  // namespace

StoreMetrics::StoreMetrics(Metrics* metrics)
    : metrics_(metrics),
      sent_by_ucx_(metrics->GetCounter(MetricId::kTransferSentBytesTotal, {"ucx"})),
      sent_by_grpc_(metrics->GetCounter(MetricId::kTransferSentBytesTotal, {"grpc"})) {}

void StoreMetrics::OnSent(transport::PathKind path, uint64_t bytes) const {
  (path == transport::PathKind::kUcx ? sent_by_ucx_ : sent_by_grpc_).Add(bytes);
}

void StoreMetrics::OnCall(const RpcEvent& event) const {
  metrics_->GetCounter(MetricId::kStoreCallsTotal, {event.call, ResultOf(event.code)}).Add();
  metrics_->GetHistogram(MetricId::kStoreCallSeconds, {event.call})
      .Observe(static_cast<double>(event.duration_us) / kUsPerSecond);
}

void StoreMetrics::OnLookup(bool hit, MissCause cause) const {
  metrics_->GetCounter(MetricId::kObjectLookupsTotal, {hit ? "hit" : NameOf(cause)}).Add();
}

void StoreMetrics::Show(const StoreGauges& gauges) const {
  ShowStore(gauges.usage, gauges.disk, metrics_);
  const std::pair<MetricId, uint64_t> now[] = {
      {MetricId::kStoreLeases, gauges.leases.held},
      {MetricId::kStoreShmConnections, gauges.shm.connections},
      {MetricId::kStoreShmLeases, gauges.shm.leases},
      {MetricId::kStoreLayerStreams, gauges.streams},
      {MetricId::kStoreAttachedCallers, gauges.attached},
  };
  for (const auto& [id, value] : now) metrics_->GetGauge(id).Set(static_cast<double>(value));
  const std::pair<MetricId, uint64_t> totals[] = {
      {MetricId::kStoreScrubbedBytesTotal, gauges.scrubbed.bytes},
      {MetricId::kStoreLeasesGrantedTotal, gauges.leases.granted},
      {MetricId::kStoreLeasesExpiredTotal, gauges.leases.expired},
      {MetricId::kStoreWarmedUpObjectsTotal, gauges.warmed_up.objects},
      {MetricId::kStoreWarmedUpBytesTotal, gauges.warmed_up.bytes},
      {MetricId::kStoreEventsTotal, gauges.events.appended},
      {MetricId::kStoreEventGapsTotal, gauges.events.gaps},
  };
  for (const auto& [id, value] : totals) metrics_->GetCounter(id).CatchUp(value);
  const std::pair<std::string_view, uint64_t> scrubbed[] = {{"right", gauges.scrubbed.objects},
                                                            {"damaged", gauges.scrubbed.damaged},
                                                            {"unreadable", gauges.scrubbed.errors}};
  for (const auto& [result, value] : scrubbed) {
    metrics_->GetCounter(MetricId::kStoreScrubbedObjectsTotal, {result}).CatchUp(value);
  }
  const std::pair<std::string_view, uint64_t> ends[] = {{"committed", gauges.reservations.committed},
                                                        {"aborted", gauges.reservations.aborted},
                                                        {"preempted", gauges.reservations.preempted},
                                                        {"failed", gauges.reservations.failed}};
  for (const auto& [end, value] : ends) {
    metrics_->GetCounter(MetricId::kStoreReservationsEndedTotal, {end}).CatchUp(value);
  }
}

}  // namespace epic::kv_store
