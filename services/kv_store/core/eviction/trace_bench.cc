// Hit ratios of the eviction policies on made-up traces, beside the optimum: Zipf 0.99, the same polluted by
// scans; the working set is three times the tier.
//
//   epic_kv_store_trace_bench [--quick] [--json]
//
// The bar, on every trace: S3-FIFO at least 1.5 points over LRU. Exits non-zero when it is missed.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "services/kv_store/core/eviction/traces.h"

namespace epic::kv_store {
namespace {

constexpr double kBar = 0.015;
constexpr uint64_t kSeeds[] = {1, 2, 3};

struct Load {
  const char* name;
  uint64_t scans;  // scans per tier's worth of requests, each a quarter of a tier long
};
constexpr Load kLoads[] = {{"zipf 0.99", 0}, {"zipf 0.99 + scans", 1}};

int Run(bool quick, bool json) {
  const uint64_t tier = quick ? 4000 : 10'000;
  bool good = true;
  std::string checks;
  for (const Load& load : kLoads) {
    for (const uint64_t seed : kSeeds) {
      const auto trace = MakeTrace({.keys = 3 * tier,
                                    .requests = quick ? 200'000u : 2'000'000u,
                                    .scan_every = load.scans > 0 ? tier / load.scans : 0,
                                    .scan_length = tier / 4,
                                    .seed = seed});
      const double lru = HitRatio(trace, EvictionKind::kLru, tier);
      const double s3_fifo = HitRatio(trace, EvictionKind::kS3Fifo, tier);
      const double optimum = OptimalHitRatio(trace, tier);
      const bool pass = s3_fifo >= lru + kBar;
      good = good && pass;
      char line[256];
      if (json) {
        std::snprintf(line, sizeof line,
                      "%s{\"name\":\"%s, seed %d: S3-FIFO over LRU, points\",\"value\":%.6g,\"target\":1.5,"
                      "\"pass\":%s}",
                      checks.empty() ? "" : ",", load.name, static_cast<int>(seed), 100 * (s3_fifo - lru),
                      pass ? "true" : "false");
        checks += line;
      } else {
        std::printf(
            "%-18s seed %d: LRU %.2f %%, S3-FIFO %.2f %% (%+.2f points, bar +1.5: %s), optimum %.2f %%\n",
            load.name, static_cast<int>(seed), 100 * lru, 100 * s3_fifo, 100 * (s3_fifo - lru),
            pass ? "kept" : "MISSED", 100 * optimum);
      }
    }
  }
  if (json) std::printf("{\"checks\":[%s]}\n", checks.c_str());
  return good ? 0 : 1;
}

}  // namespace
}  // namespace epic::kv_store

int main(int argc, char** argv) {
  bool quick = false, json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    quick = quick || flag == "--quick";
    json = json || flag == "--json";
    if (flag != "--quick" && flag != "--json") {
      std::fprintf(stderr, "usage: %s [--quick] [--json]\n", argv[0]);
      return 2;
    }
  }
  return epic::kv_store::Run(quick, json);
}
