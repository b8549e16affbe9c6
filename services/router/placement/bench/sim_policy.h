// Who decides in the simulation of scale where a request is linked: EPIC's placement, and what it is held
// against. All of them have the same number of routers, the same reports at the same delay, and see the ends
// of their own requests. One thread at a time. Benches and tests only.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_POLICY_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_POLICY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "services/router/placement/bench/sim_trace.h"
#include "services/router/placement/placement.h"

namespace epic::router {

// 1,000 nodes with one device and one link each. A worker's link is that of its stores' other end.
struct ClusterOptions {
  uint32_t link_workers = 600;
  uint32_t compile_workers = 100;
  uint32_t stores = 300;
  uint32_t routers = 8;
  uint32_t replicas = 2;            // of each object, on disk
  uint32_t device_contexts = 1024;  // 64 GiB of a link worker
  uint32_t host_contexts = 4096;    // 256 GiB of a store
  double context_bytes = 64.0 * (1 << 20);
  uint32_t context_rows = 512;  // 128 KiB of keys and values for each token: an 8B model with grouped heads
  double link_bytes_per_s = 25e9;  // 200 Gb/s, each way
  double disk_bytes_per_s = 25e9;  // four drives
  double compile_rows_per_s = 30e3;
  double link_rows_per_s = 30e3;
  double speed_spread = 0.1;       // of workers' rates: standard deviation of the logarithm
  uint32_t rows_per_request = 64;  // of the question
  uint32_t rows_per_context = 32;  // repaired
  double decode_s = 0.0025;  // of a device, for what a request makes it decode: 32 tokens in large batches
  double hop_s = 0.0005;     // router to worker
  double report_period_s = 0.1;
  double report_delay_s = 0.01;
  double event_delay_s = 0.05;  // of what stores and link workers publish
  double detect_s = 0.05;       // from a death until routers know
};

class SimClock final : public Clock {
 public:
  int64_t UnixMs() const override { return SteadyNs() / 1'000'000; }
  int64_t SteadyNs() const override { return static_cast<int64_t>(now_s * 1e9); }
  double now_s = 1;
};

struct SimDecision {
  uint32_t worker = 0;
  bool compile_elsewhere = true;
  uint64_t ticket = 0;
  uint64_t serial = 0;
};

class SimPolicy {
 public:
  virtual ~SimPolicy() = default;
  virtual SimDecision Choose(uint32_t router, const TraceRequest& request) = 0;
  virtual void Done(uint32_t router, const SimDecision& decision, const WorkerMeasure& measure) = 0;
  virtual void Report(uint32_t router, uint32_t worker, const WorkerReport& report) = 0;
  virtual void Tick() {}
  virtual void LinkDown(uint32_t worker) = 0;
  virtual void StoreDown(uint32_t /*store*/) {}
  // What nodes publish, when it arrives. A store has its disk's copy besides.
  virtual void DeviceChanged(uint32_t /*worker*/, ContextNumber /*context*/, bool /*there*/) {}
  virtual void StoreChanged(uint32_t /*store*/, ContextNumber /*context*/, Tiers /*tiers*/) {}
};

enum class PolicyKind { kRoundRobin, kLeastLoaded, kPrefixHash, kOurs };
std::string NameOf(PolicyKind kind);
// `clock` outlives it. `contexts`: what the index should have room for.
std::unique_ptr<SimPolicy> MakePolicy(PolicyKind kind, const ClusterOptions& options, uint32_t contexts,
                                      const Clock* clock);

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SIM_POLICY_H_
