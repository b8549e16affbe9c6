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

struct Shape {
  size_t rows = 0, keys = 0, panel = 0;
  DType dtype = DType::kF32;
  uint32_t chunks = 1;
};

// Random queries, keys and values of one shape; the queries are the last `rows` rows of a prompt of `keys`.
class Case {
 public:
  explicit Case(const Shape& shape)
      : shape_(shape),
        q_(shape.rows * kRowWidth),
        out_(q_.size()),
        rope_(RopePairs::kNorm, Frequencies(), 8192, 1.0) {
    Rng rng(1);
    const size_t count = shape.keys * kKvHeads * kHeadDim;
    for (std::vector<float>* values : {&k_, &v_}) {
      values->resize(count);
      for (float& value : *values) value = static_cast<float>(rng.Uniform() - 0.5);
    }
    for (const float value : k_) k16_.push_back(ToBf16(value));
    for (const float value : v_) v16_.push_back(ToBf16(value));
    for (float& value : q_) value = static_cast<float>(rng.Uniform() - 0.5);
    for (size_t r = 0; r < shape.rows; ++r) {
      positions_.push_back(static_cast<uint32_t>(shape.keys - shape.rows + r));
    }
    AddSegments();
  }

  // In calls of at most `panel` rows; the reference runs the first panel only.
  void Run(KernelPath path) {
    for (size_t first = 0; first < shape_.rows; first += shape_.panel) {
      SegmentAttentionArgs args;
      args.q = q_.data() + first * kRowWidth;
      args.q_stride = kRowWidth;
      args.q_positions = positions_.data() + first;
      args.rows = std::min(shape_.panel, shape_.rows - first);
      args.heads = kHeads;
      args.kv_heads = kKvHeads;
      args.head_dim = kHeadDim;
      args.scale = 0.125f;
      args.segments = segments_;
      args.rope = &rope_;
      args.out = out_.data() + first * kRowWidth;
      args.out_stride = kRowWidth;
      SegmentAttention(args, Pool(), path);
      if (path == KernelPath::kReference) return;
    }
  }

  // True when the first panel agrees with the reference.
  bool Agrees() {
    Run(KernelPath::kReference);
    const std::vector<float> expected = out_;
    Run(KernelPath::kCpu);
    for (size_t i = 0; i < std::min(shape_.panel, shape_.rows) * kRowWidth; i += 97) {
      if (std::abs(out_[i] - expected[i]) > 1e-4) return false;
    }
    return true;
  }

  // A product and an addition for each element of Q·K and of P·V, over the pairs that causality leaves.
  double Flop() const {
    double pairs = 0;
    for (const uint32_t position : positions_) pairs += position + 1.0;
    return pairs * kHeads * kHeadDim * 4;
  }

 private:
  static constexpr size_t kRowWidth = kHeads * kHeadDim;

  static std::vector<double> Frequencies() {
    std::vector<double> frequencies(kHeadDim / 2);
    for (size_t j = 0; j < frequencies.size(); ++j)
      frequencies[j] = std::pow(1e5, -static_cast<double>(j) / 32);
    return frequencies;
  }

  void AddSegments() {
    const auto chunk_rows = static_cast<uint32_t>(shape_.keys / shape_.chunks);
    for (uint32_t s = 0; s < shape_.chunks; ++s) {
      const size_t at = size_t{s} * chunk_rows * kHeadDim;
      const bool f32 = shape_.dtype == DType::kF32;
      KvSegment segment;
      segment.k = f32 ? static_cast<const void*>(k_.data() + at) : k16_.data() + at;
      segment.v = f32 ? static_cast<const void*>(v_.data() + at) : v16_.data() + at;
      segment.dtype = shape_.dtype;
      segment.head_stride = shape_.keys * kHeadDim;
      segment.rows = chunk_rows;
      segment.position = s * chunk_rows;
      segments_.push_back(segment);
    }
  }

  const Shape shape_;
  std::vector<float> k_, v_, q_, out_;
  std::vector<Bf16> k16_, v16_;
  const RopeTable rope_;
  std::vector<uint32_t> positions_;
  std::vector<KvSegment> segments_;
};

// Arguments: rows, keys, panel, bf16, segments.
void BM_SegmentAttention(benchmark::State& state) {
  Case attention({static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)),
                  static_cast<size_t>(state.range(2)), state.range(3) != 0 ? DType::kBf16 : DType::kF32,
                  static_cast<uint32_t>(state.range(4))});
  // The reference takes minutes for thousands of rows.
  if (state.range(0) <= 512 && !attention.Agrees()) {
    state.SkipWithError("wrong result");
    return;
  }
  double best = 1e30;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    attention.Run(KernelPath::kCpu);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  state.counters["best_ms"] = best * 1e3;
  state.counters["best_GFLOPS"] = attention.Flop() / best * 1e-9;
  state.counters["roof%"] = 100 * attention.Flop() / best / Roof();
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
