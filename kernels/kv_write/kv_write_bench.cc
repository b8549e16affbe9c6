// Keys rotated and values copied into a segment, at the shape of a 135M model (3 kv heads of 64), in GB/s of
// the best iteration and % of a copy of as many bytes in the same run.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/kv_write/kv_write.h"

namespace epic {
namespace {

constexpr uint32_t kKvHeads = 3, kHeadDim = 64, kPositions = 8192;

const RopeTable& Table() {
  static const RopeTable table = [] {
    std::vector<double> frequencies(kHeadDim / 2);
    for (size_t j = 0; j < frequencies.size(); ++j) {
      frequencies[j] = std::pow(1e5, -static_cast<double>(j) / 32);
    }
    return RopeTable(RopePairs::kNorm, frequencies, kPositions, 1.0);
  }();
  return table;
}

// Arguments: rows, bf16, keys (rotated) or values.
void BM_KvWrite(benchmark::State& state) {
  const size_t rows = state.range(0);
  const DType dtype = state.range(1) != 0 ? DType::kBf16 : DType::kF32;
  const size_t width = kKvHeads * kHeadDim;
  const std::vector<float> in = bench::RandomValues(rows * width, 1);
  std::vector<uint32_t> positions(rows);
  std::iota(positions.begin(), positions.end(), 1000u);
  std::vector<std::byte> out(rows * width * SizeOf(dtype));
  KvWriteArgs args;
  args.in = in.data();
  args.in_stride = width;
  args.rows = rows;
  args.kv_heads = kKvHeads;
  args.head_dim = kHeadDim;
  args.rope = state.range(2) != 0 ? &Table() : nullptr;
  args.positions = positions.data();
  args.out = out.data();
  args.dtype = dtype;
  args.head_stride = rows * kHeadDim;
  KvWrite(args, nullptr, KernelPath::kReference);
  const std::vector<std::byte> expected = out;
  KvWrite(args, bench::Pool());
  // The reference rotates in double: one place of the type apart at most.
  const double most = dtype == DType::kBf16 ? 0x1.0p-8 : 0x1.0p-22;
  for (size_t i = 0; i < rows * width; ++i) {
    const auto value = [&](const std::vector<std::byte>& bytes) {
      if (dtype == DType::kF32) return reinterpret_cast<const float*>(bytes.data())[i];
      return ToF32(reinterpret_cast<const Bf16*>(bytes.data())[i]);
    };
    if (!(std::abs(value(out) - value(expected)) <= most)) return state.SkipWithError("wrong result");
  }
  const double best = bench::BestSeconds(state, [&] { KvWrite(args, bench::Pool()); });
  bench::ReportBytes(state, rows * width * (sizeof(float) + SizeOf(dtype)), best);
}

BENCHMARK(BM_KvWrite)
    ->ArgNames({"rows", "bf16", "keys"})
    ->Args({512, 1, 1})
    ->Args({512, 1, 0})
    ->Args({512, 0, 1})
    ->Args({1, 1, 1})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
