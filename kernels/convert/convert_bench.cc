// Conversions between f32 and bf16 on one thread, at the sizes of a row and of a panel of a 135M model, in
// GB/s of the best iteration and % of a copy of as many bytes (on two threads) in the same run.
#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/convert/convert.h"

namespace epic {
namespace {

// Argument: values.
void BM_F32ToBf16(benchmark::State& state) {
  const std::vector<float> in = bench::RandomValues(state.range(0), 1);
  std::vector<Bf16> out(in.size()), expected(in.size());
  F32ToBf16(in.data(), expected.data(), in.size(), KernelPath::kReference);
  F32ToBf16(in.data(), out.data(), in.size());
  if (out != expected) return state.SkipWithError("wrong result");
  const double best = bench::BestSeconds(state, [&] { F32ToBf16(in.data(), out.data(), in.size()); });
  bench::ReportBytes(state, in.size() * (sizeof(float) + sizeof(Bf16)), best);
}

void BM_Bf16ToF32(benchmark::State& state) {
  const std::vector<float> values = bench::RandomValues(state.range(0), 1);
  std::vector<Bf16> in(values.size());
  F32ToBf16(values.data(), in.data(), in.size(), KernelPath::kReference);
  std::vector<float> out(in.size()), expected(in.size());
  Bf16ToF32(in.data(), expected.data(), in.size(), KernelPath::kReference);
  Bf16ToF32(in.data(), out.data(), in.size());
  if (out != expected) return state.SkipWithError("wrong result");
  const double best = bench::BestSeconds(state, [&] { Bf16ToF32(in.data(), out.data(), in.size()); });
  bench::ReportBytes(state, in.size() * (sizeof(float) + sizeof(Bf16)), best);
}

BENCHMARK(BM_F32ToBf16)->Arg(576)->Arg(512 * 1536)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(BM_Bf16ToF32)->Arg(576)->Arg(512 * 1536)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
