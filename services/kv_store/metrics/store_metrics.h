// What a store process counts and shows, by the one list of metrics (common/metrics). Owned by the process;
// thread-safe. Not here: who serves them (http/admin_site.h).
#ifndef EPIC_SERVICES_KV_STORE_METRICS_STORE_METRICS_H_
#define EPIC_SERVICES_KV_STORE_METRICS_STORE_METRICS_H_

#include <cstdint>
#include <functional>

#include "common/metrics/metrics.h"
#include "common/rpc/rpc_event.h"
#include "common/storage/kv_store.h"
#include "common/storage/shm/server.h"
#include "common/transport/transport.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {

// What is asked at each scrape.
struct StoreGauges {
  StoreUsage usage;
  StoreDisk disk;
  ScrubCounts scrubbed;
  Reservations::Counts reservations;
  LeaseTable::Counts leases;
  EventLog::Counts events;
  WarmUpCounts warmed_up;
  shm::Server::Numbers shm;
  uint32_t streams = 0;   // of layers
  uint64_t attached = 0;  // callers
};

class StoreMetrics {
 public:
  // `metrics` outlives this.
  explicit StoreMetrics(Metrics* metrics);

  void OnCall(const RpcEvent& event) const;
  void OnLookup(bool hit, MissCause cause) const;
  // Bytes of layers that a reader has taken.
  void OnSent(transport::PathKind path, uint64_t bytes) const;
  // Sets what scrapes show.
  void Show(const StoreGauges& gauges) const;

 private:
  Metrics* const metrics_;
  const Counter sent_by_ucx_, sent_by_grpc_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_METRICS_STORE_METRICS_H_
