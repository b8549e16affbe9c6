// The sections of the bench of scale. Benches only.
#ifndef EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SECTIONS_H_
#define EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SECTIONS_H_

#include "services/router/placement/bench/bench_report.h"
#include "services/router/placement/bench/sim_policy.h"
#include "services/router/placement/bench/sim_trace.h"

namespace epic::router {

struct ScaleOptions {
  bool quick = false;  // a tenth of everything
  double zipf = 0.9;
  double nominal_per_s = 50'000;  // of 1,000 nodes
};

inline ClusterOptions ClusterOf(const ScaleOptions& options) {
  ClusterOptions cluster;
  if (!options.quick) return cluster;
  cluster.link_workers /= 10;
  cluster.compile_workers /= 10;
  cluster.stores /= 10;
  return cluster;
}

inline TraceOptions TraceOf(const ScaleOptions& options) {
  TraceOptions trace{.zipf = options.zipf};
  if (options.quick) trace.contexts /= 10;
  return trace;
}

// The index with every context's record and object on two stores, and link workers' copies: its memory, how
// fast it takes inventories and events, lookups; then choices of placement over it. Wall-clock times of one
// core.
void BenchIndex(const ScaleOptions& options, BenchReport* report);
// Four policies on the same traces: knees, times to the first token, balance, queues past the knee, and what
// a tenth of the nodes dying does. Virtual time: the same on every machine.
void BenchPolicies(const ScaleOptions& options, BenchReport* report);

}  // namespace epic::router

#endif  // EPIC_SERVICES_ROUTER_PLACEMENT_BENCH_SECTIONS_H_
