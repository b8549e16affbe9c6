// The gate of the feed-forward block at the shape of a 135M model, in GB/s of the
// best iteration and % of a copy of as many bytes in the same run.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/swiglu/swiglu.h"

namespace epic {
namespace {

// Arguments: rows, dim.
void BM_SwiGlu(benchmark::State& state) {
  const size_t rows = state.range(0), dim = state.range(1);
  const std::vector<float> in = bench::RandomValues(rows * 2 * dim, 1);
  std::vector<float> out(rows * dim);
  const SwiGluArgs args = {.gate = in.data(),
                           .up = in.data() + dim,
                           .in_stride = 2 * dim,
                           .rows = rows,
                           .dim = dim,
                           .out = out.data(),
                           .out_stride = dim};
  SwiGlu(args, nullptr, KernelPath::kReference);
  const std::vector<float> expected = out;
  SwiGlu(args, bench::Pool());
  if (!bench::Agree(out, expected, 1e-6)) return state.SkipWithError("wrong result");
  const double best = bench::BestSeconds(state, [&] { SwiGlu(args, bench::Pool()); });
  bench::ReportBytes(state, 3 * rows * dim * sizeof(float), best);
}

BENCHMARK(BM_SwiGlu)
    ->ArgNames({"rows", "dim"})
    ->Args({512, 1536})
    ->Args({1, 1536})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
