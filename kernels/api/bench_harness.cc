#include "kernels/api/bench_harness.h"

#include <cmath>

#include "common/base/random.h"
#include "kernels/api/roof.h"

namespace epic::bench {

ThreadPool* Pool() {
  static ThreadPool pool(kThreads);
  return &pool;
}

std::vector<float> RandomValues(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.Uniform() - 0.5);
  return values;
}

bool Agree(std::span<const float> a, std::span<const float> b, double most) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(double{a[i]} - b[i]) <= most)) return false;
  }
  return true;
}

void ReportFlop(benchmark::State& state, double flop, double best_seconds) {
  static const double roof = MeasureFmaRoof(Pool());
  state.counters["best_GFLOPS"] = flop / best_seconds * 1e-9;
  state.counters["roof%"] = 100 * flop / best_seconds / roof;
}

void ReportBytes(benchmark::State& state, size_t bytes, double best_seconds) {
  const double rate = static_cast<double>(bytes) / best_seconds;
  state.counters["best_GBps"] = rate * 1e-9;
  state.counters["roof%"] = 100 * rate / MeasureCopyRoof(Pool(), bytes);
}

}  // namespace epic::bench
