// Hit ratios of the eviction policies on made-up traces whose working set is three times the tier.
#include "services/kv_store/core/eviction/traces.h"

#include <string>

#include "services/kv_store/testing/bench/sections.h"

namespace epic::kv_store {
namespace {

constexpr double kBar = 1.5;  // points of S3-FIFO over LRU

}  // namespace

void BenchTraces(const BenchOptions& options, BenchReport* report) {
  const uint64_t tier = options.quick ? 4000 : 10'000;
  for (const bool scans : {false, true}) {
    const auto trace = MakeTrace({.keys = 3 * tier,
                                  .requests = options.quick ? 200'000u : 2'000'000u,
                                  .scan_every = scans ? tier : 0,
                                  .scan_length = tier / 4,
                                  .seed = 1});
    const std::string name = scans ? "zipf 0.99 and scans: " : "zipf 0.99: ";
    const double lru = 100 * HitRatio(trace, EvictionKind::kLru, tier);
    const double s3_fifo = 100 * HitRatio(trace, EvictionKind::kS3Fifo, tier);
    const double optimum = 100 * OptimalHitRatio(trace, tier);
    report->Check(name + "nobody beats the optimum", lru <= optimum && s3_fifo <= optimum);
    report->Add(name + "hits, LRU", lru, "%");
    report->Add(name + "hits, S3-FIFO", s3_fifo, "%");
    report->Add(name + "hits, optimum", optimum, "%");
    report->AtLeast(name + "S3-FIFO over LRU", s3_fifo - lru, "points", kBar);
  }
}

}  // namespace epic::kv_store
