// Attention at the shapes of a 135M model (9 heads, 3 kv heads of 64), beside its roof: the time of the bare
// products (2 * head_dim multiply-adds for each head and visible pair of row and key, at the rate of an FMA
// loop) plus the time of one exponential for each pair. Kernel and roof run by turns; all numbers are
// medians.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/api/roof.h"
#include "kernels/segment_attention/segment_attention.h"

namespace epic {
namespace {

using bench::Pool;

constexpr uint32_t kHeads = 9, kKvHeads = 3, kHeadDim = 64;
// Rows that the slow reference does: the last ones, which see the most keys.
constexpr size_t kCheckedRows = 16;

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
    const size_t count = shape.keys * kKvHeads * kHeadDim;
    k_ = bench::RandomValues(count, 1);
    v_ = bench::RandomValues(count, 2);
    q_ = bench::RandomValues(q_.size(), 3);
    for (const float value : k_) k16_.push_back(ToBf16(value));
    for (const float value : v_) v16_.push_back(ToBf16(value));
    for (size_t r = 0; r < shape.rows; ++r) {
      positions_.push_back(static_cast<uint32_t>(shape.keys - shape.rows + r));
    }
    AddSegments();
  }

  // In calls of at most `panel` rows.
  void Run() {
    for (size_t first = 0; first < shape_.rows; first += shape_.panel) {
      RunRows(first, std::min(shape_.panel, shape_.rows - first), KernelPath::kCpu);
    }
  }

  // True when the last rows agree with the reference.
  bool Agrees() {
    const size_t rows = std::min(shape_.rows, kCheckedRows);
    const size_t first = shape_.rows - rows;
    RunRows(first, rows, KernelPath::kReference);
    const std::vector<float> expected(out_.begin() + first * kRowWidth, out_.end());
    Run();
    return bench::Agree(std::span<const float>(out_).subspan(first * kRowWidth), expected, 1e-5);
  }

  // Pairs of a row and a key that it sees, for every head.
  double Pairs() const {
    double pairs = 0;
    for (const uint32_t position : positions_) pairs += position + 1.0;
    return pairs * kHeads;
  }

 private:
  static constexpr size_t kRowWidth = kHeads * kHeadDim;

  static std::vector<double> Frequencies() {
    std::vector<double> frequencies(kHeadDim / 2);
    for (size_t j = 0; j < frequencies.size(); ++j)
      frequencies[j] = std::pow(1e5, -static_cast<double>(j) / 32);
    return frequencies;
  }

  void RunRows(size_t first, size_t rows, KernelPath path) {
    SegmentAttentionArgs args;
    args.q = q_.data() + first * kRowWidth;
    args.q_stride = kRowWidth;
    args.q_positions = positions_.data() + first;
    args.rows = rows;
    args.heads = kHeads;
    args.kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.scale = 0.125f;
    args.segments = segments_;
    args.rope = &rope_;
    args.out = out_.data() + first * kRowWidth;
    args.out_stride = kRowWidth;
    SegmentAttention(args, Pool(), path);
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

double SecondsOf(const std::function<void()>& fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Arguments: rows, keys, panel, bf16, segments.
void BM_SegmentAttention(benchmark::State& state) {
  Case attention({static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)),
                  static_cast<size_t>(state.range(2)), state.range(3) != 0 ? DType::kBf16 : DType::kF32,
                  static_cast<uint32_t>(state.range(4))});
  if (!attention.Agrees()) return state.SkipWithError("wrong result");
  const double pairs = attention.Pairs();
  // The best of a few calls in a row: a call may be shorter than a disturbance.
  const int calls = std::clamp(static_cast<int>(0.02 / SecondsOf([&] { attention.Run(); })), 1, 10);
  std::vector<double> seconds, shares, product_shares;
  for (auto _ : state) {
    double best = 1e30;
    for (int i = 0; i < calls; ++i) best = std::min(best, SecondsOf([&] { attention.Run(); }));
    const double products = TimeFma(Pool(), pairs * kHeadDim * 2);
    const double roof = products + TimeExp(Pool(), pairs);
    seconds.push_back(best);
    shares.push_back(100 * roof / best);
    product_shares.push_back(100 * products / best);
    state.SetIterationTime(best);
  }
  const double median = Median(seconds);
  state.counters["ms"] = median * 1e3;
  state.counters["GFLOPS"] = pairs * kHeadDim * 4 / median * 1e-9;
  state.counters["products%"] = Median(product_shares);
  state.counters["roof%"] = Median(shares);
  state.counters["roof_min%"] = *std::min_element(shares.begin(), shares.end());
  state.counters["roof_max%"] = *std::max_element(shares.begin(), shares.end());
}

BENCHMARK(BM_SegmentAttention)
    ->ArgNames({"rows", "keys", "panel", "bf16", "segments"})
    ->Args({512, 512, 512, 1, 1})
    ->Args({512, 512, 512, 0, 1})
    ->Args({192, 4160, 192, 1, 8})
    ->Args({512, 4160, 512, 1, 1})
    ->Args({4160, 4160, 512, 1, 1})
    ->Args({1, 4160, 1, 1, 8})
    ->Iterations(9)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
