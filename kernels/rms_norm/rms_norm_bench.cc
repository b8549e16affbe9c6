// Norms of rows and of heads, at the shapes of a 135M model and of one with norms of q (16 heads of 128), in
// GB/s of the best iteration and % of a copy of as many bytes in the same run.
#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/rms_norm/rms_norm.h"

namespace epic {
namespace {

// Arguments: rows, groups, dim.
void BM_RmsNorm(benchmark::State& state) {
  const size_t rows = state.range(0), groups = state.range(1), dim = state.range(2);
  const std::vector<float> x = bench::RandomValues(rows * groups * dim, 1);
  const std::vector<float> weight = bench::RandomValues(dim, 2);
  std::vector<float> out(x.size());
  const RmsNormArgs args = {.x = x.data(),
                            .x_stride = groups * dim,
                            .rows = rows,
                            .groups = groups,
                            .dim = dim,
                            .weight = weight.data(),
                            .epsilon = 1e-5f,
                            .out = out.data(),
                            .out_stride = groups * dim};
  RmsNorm(args, nullptr, KernelPath::kReference);
  const std::vector<float> expected = out;
  RmsNorm(args, bench::Pool());
  if (!bench::Agree(out, expected, 1e-5)) return state.SkipWithError("wrong result");
  const double best = bench::BestSeconds(state, [&] { RmsNorm(args, bench::Pool()); });
  bench::ReportBytes(state, 2 * x.size() * sizeof(float), best);
}

BENCHMARK(BM_RmsNorm)
    ->ArgNames({"rows", "groups", "dim"})
    ->Args({512, 1, 576})
    ->Args({512, 16, 128})
    ->Args({1, 1, 576})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
