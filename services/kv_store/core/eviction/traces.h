// Made-up traces of lookups and what a cache makes of them: for tests and benchmarks only. Every trace
// follows from its seed. All entries have the same size, so that the optimum is exact.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_TRACES_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_TRACES_H_

#include <cstdint>
#include <vector>

#include "services/kv_store/core/eviction/eviction_policy.h"

namespace epic::kv_store {

struct TraceOptions {
  uint64_t keys = 30'000;  // the working set
  uint64_t requests = 1'000'000;
  double zipf_exponent = 0.99;
  // Scans: runs of keys that come this once, between the others.
  uint64_t scan_every = 0;  // requests of the working set between two scans; 0: none
  uint64_t scan_length = 0;
  uint64_t seed = 1;
};

// Key k of the working set is asked for with a probability proportional to 1 / rank^zipf_exponent, ranks
// being dealt out at random. Keys of scans are above those of the working set.
std::vector<uint64_t> MakeTrace(const TraceOptions& options);

// The share of lookups that hit in a tier of `capacity` entries that starts empty.
double HitRatio(const std::vector<uint64_t>& trace, EvictionKind kind, uint64_t capacity);

// The most that is possible (Belady 1966): what is asked for again last goes, or is not taken in at all.
double OptimalHitRatio(const std::vector<uint64_t>& trace, uint64_t capacity);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_TRACES_H_
