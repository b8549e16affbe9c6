// Attention at the shapes of a 135M model (9 heads, 3 kv heads of 64), in GFLOP/s of the best iteration and %
// of the measured FMA roof. A visible pair of row and key counts 4 * head_dim FLOP a head.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/roof.h"
#include "kernels/segment_attention/segment_attention.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 2;
constexpr uint32_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;

ThreadPool* Pool() {
  static ThreadPool pool(kThreads);
  return &pool;
}

double Roof() {
  static const double roof = MeasureFmaRoof(Pool());
  return roof;
}

// The last `rows` rows of a prompt of `keys`, in calls of at most `panel` rows. Arguments: rows, keys, panel,
// bf16, segments.
void BM_SegmentAttention(benchmark::State& state) {
  const size_t rows = state.range(0), keys = state.range(1), panel = state.range(2);
  const DType dtype = state.range(3) != 0 ? DType::kBf16 : DType::kF32;
  const uint32_t chunks = static_cast<uint32_t>(state.range(4));
  Rng rng(1);
  const size_t count = keys * kKvHeads * kHeadDim;
  std::vector<float> k(count), v(count), q(rows * kHeads * kHeadDim), out(q.size());
  std::vector<Bf16> k16(count), v16(count);
  for (size_t i = 0; i < count; ++i) {
    k[i] = static_cast<float>(rng.Uniform() - 0.5);
    v[i] = static_cast<float>(rng.Uniform() - 0.5);
    k16[i] = ToBf16(k[i]);
    v16[i] = ToBf16(v[i]);
  }
  for (float& value : q) value = static_cast<float>(rng.Uniform() - 0.5);
  std::vector<double> frequencies(kHeadDim / 2);
  for (size_t j = 0; j < frequencies.size(); ++j)
    frequencies[j] = std::pow(1e5, -static_cast<double>(j) / 32);
  const RopeTable rope(RopePairs::kNorm, frequencies, 8192, 1.0);
  std::vector<uint32_t> positions(rows);
  for (size_t r = 0; r < rows; ++r) positions[r] = static_cast<uint32_t>(keys - rows + r);
  std::vector<KvSegment> segments(chunks);
  const uint32_t chunk_rows = static_cast<uint32_t>(keys / chunks);
  for (uint32_t s = 0; s < chunks; ++s) {
    const size_t at = size_t{s} * chunk_rows * kHeadDim;
    segments[s].k = dtype == DType::kF32 ? static_cast<const void*>(k.data() + at) : k16.data() + at;
    segments[s].v = dtype == DType::kF32 ? static_cast<const void*>(v.data() + at) : v16.data() + at;
    segments[s].dtype = dtype;
    segments[s].head_stride = keys * kHeadDim;
    segments[s].rows = chunk_rows;
    segments[s].position = s * chunk_rows;
  }
  double pairs = 0;
  for (const uint32_t position : positions) pairs += position + 1.0;
  const auto run = [&](KernelPath path) {
    for (size_t first = 0; first < rows; first += panel) {
      SegmentAttentionArgs args;
      args.q = q.data() + first * kHeads * kHeadDim;
      args.q_stride = kHeads * kHeadDim;
      args.q_positions = positions.data() + first;
      args.rows = std::min(panel, rows - first);
      args.heads = kHeads;
      args.kv_heads = kKvHeads;
      args.head_dim = kHeadDim;
      args.scale = 0.125f;
      args.segments = segments;
      args.rope = &rope;
      args.out = out.data() + first * kHeads * kHeadDim;
      args.out_stride = kHeads * kHeadDim;
      SegmentAttention(args, Pool(), path);
      if (path == KernelPath::kReference) return;
    }
  };
  if (rows <= 512) {
    run(KernelPath::kReference);
    const std::vector<float> expected = out;
    run(KernelPath::kCpu);
    for (size_t i = 0; i < std::min(panel, rows) * kHeads * kHeadDim; i += 97) {
      if (std::abs(out[i] - expected[i]) > 1e-4) {
        state.SkipWithError("wrong result");
        return;
      }
    }
  }
  double best = 1e30;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    run(KernelPath::kCpu);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  const double flop = pairs * kHeads * kHeadDim * 4;
  state.counters["best_ms"] = best * 1e3;
  state.counters["best_GFLOPS"] = flop / best * 1e-9;
  state.counters["roof%"] = 100 * flop / best / Roof();
}

BENCHMARK(BM_SegmentAttention)
    ->ArgNames({"rows", "keys", "panel", "bf16", "segments"})
    ->Args({512, 512, 512, 1, 1})
    ->Args({512, 512, 512, 0, 1})
    ->Args({192, 4160, 192, 1, 8})
    ->Args({512, 4160, 512, 1, 1})
    ->Args({4160, 4160, 512, 1, 1})
    ->Args({1, 4160, 1, 1, 8})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
