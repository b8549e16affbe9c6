// What benches of ops share: a pool, values, the best iteration, and its share of a measured roof.
//
// Benches only; one thread, the bench's, which lends the pool. A bench checks its op against the reference
// first, and reports an error instead of a time when they differ.
#ifndef EPIC_KERNELS_API_BENCH_HARNESS_H_
#define EPIC_KERNELS_API_BENCH_HARNESS_H_

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/thread_pool.h"

namespace epic::bench {

inline constexpr uint32_t kThreads = 2;
ThreadPool* Pool();

// Uniform in [-0.5, 0.5), the same on every machine for a seed.
std::vector<float> RandomValues(size_t count, uint64_t seed);

// True when no two differ by more than `most`. NaN differs from everything.
bool Agree(std::span<const float> a, std::span<const float> b, double most);

// Seconds of the best iteration: what the code can do when others use the machine too.
template <typename Fn>
double BestSeconds(benchmark::State& state, const Fn& fn) {
  double best = 1e30;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

// Counters best_GFLOPS, and roof%: of an FMA loop on the same pool, measured in this run.
void ReportFlop(benchmark::State& state, double flop, double best_seconds);
// Counters best_GBps, and roof%: of a copy that moves as many bytes, read and written together.
void ReportBytes(benchmark::State& state, size_t bytes, double best_seconds);

}  // namespace epic::bench

#endif  // EPIC_KERNELS_API_BENCH_HARNESS_H_
