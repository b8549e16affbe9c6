// Attention at the shapes of a 135M model (9 heads, 3 kv heads of 64), beside its roof: the time of the bare
// products (2 * head_dim multiply-adds for each head and visible pair of row and key) plus the time of one
// exponential for each pair. Products run at the rate of an FMA loop, or, where the kernel uses matrix tiles,
// of oneDNN's bf16 products of a task's rows with a tile of keys. Kernel and roof run by turns; all numbers
// are medians.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <dnnl.hpp>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/api/roof.h"
#include "kernels/segment_attention/segment_attention.h"
#include "kernels/segment_attention/tile_unit.h"

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
  bool Agrees(double most) {
    const size_t rows = std::min(shape_.rows, kCheckedRows);
    const size_t first = shape_.rows - rows;
    RunRows(first, rows, KernelPath::kReference);
    const std::vector<float> expected(out_.begin() + first * kRowWidth, out_.end());
    Run();
    return bench::Agree(std::span<const float>(out_).subspan(first * kRowWidth), expected, most);
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
    args.arithmetic = shape_.dtype;
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

// Bare oneDNN: bf16 rows of a task times a tile of keys, and its weights times the values, one thread each.
class BareBf16Products {
 public:
  explicit BareBf16Products(uint32_t threads) {
    for (uint32_t i = 0; i < threads; ++i) {
      for (const auto& [inputs, outputs] : {std::pair{kHeadDim, kKeys}, std::pair{kKeys, kHeadDim}}) {
        products_.push_back(std::make_unique<Product>(engine_, inputs, outputs));
      }
    }
  }

  // Seconds of that many multiply-adds at the rate of a short run.
  double Time(ThreadPool* pool, double multiply_adds) {
    constexpr int kSteps = 200;
    const double seconds = SecondsOf([&] {
      pool->ParallelFor(pool->threads(), [&](size_t index, uint32_t /*worker*/) {
        omp_set_num_threads(1);
        dnnl::stream stream(engine_);
        for (int step = 0; step < kSteps; ++step) {
          for (size_t i = 0; i < 2; ++i) products_[2 * index + i]->Run(stream);
        }
        stream.wait();
      });
    });
    return seconds * multiply_adds / (2.0 * kSteps * pool->threads() * kRows * kKeys * kHeadDim);
  }

 private:
  static constexpr int64_t kRows = 384, kKeys = 128, kHeadDim = 64;
  using Memory = dnnl::memory;

  struct Product {
    Product(const dnnl::engine& engine, int64_t inputs, int64_t outputs)
        : plan({{{kRows, inputs}, Memory::data_type::bf16, Memory::format_tag::ab},
                {{inputs, outputs}, Memory::data_type::bf16, Memory::format_tag::any},
                {{kRows, outputs}, Memory::data_type::f32, Memory::format_tag::ab}},
               engine),
          x(plan.src_desc(), engine),
          y(plan.weights_desc(), engine),
          out(plan.dst_desc(), engine),
          product(plan) {
      std::memset(x.get_data_handle(), 0, plan.src_desc().get_size());
      std::memset(y.get_data_handle(), 0, plan.weights_desc().get_size());
    }
    void Run(dnnl::stream& stream) {
      product.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, y}, {DNNL_ARG_DST, out}});
    }
    dnnl::matmul::primitive_desc plan;
    Memory x, y, out;
    dnnl::matmul product;
  };

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  std::vector<std::unique_ptr<Product>> products_;
};

// Seconds of the products of attention at their roof.
double TimeProducts(bool tiles, double multiply_adds) {
  if (!tiles) return TimeFma(Pool(), multiply_adds);
  omp_set_num_threads(1);
  static BareBf16Products products(Pool()->threads());
  return products.Time(Pool(), multiply_adds);
}

// Arguments: rows, keys, panel, bf16, segments.
void BM_SegmentAttention(benchmark::State& state) {
  Case attention({static_cast<size_t>(state.range(0)), static_cast<size_t>(state.range(1)),
                  static_cast<size_t>(state.range(2)), state.range(3) != 0 ? DType::kBf16 : DType::kF32,
                  static_cast<uint32_t>(state.range(4))});
  const bool tiles = state.range(3) != 0 && internal::AmxTileUnit() != nullptr;
  // Values below 1/2; tiles round queries and weights to 8 bits.
  if (!attention.Agrees(tiles ? 0x1.0p-9 : 1e-5)) return state.SkipWithError("wrong result");
  const double pairs = attention.Pairs();
  // The best of a few calls in a row: a call may be shorter than a disturbance.
  const int calls = std::clamp(static_cast<int>(0.02 / SecondsOf([&] { attention.Run(); })), 1, 10);
  std::vector<double> seconds, shares, product_shares;
  for (auto _ : state) {
    double best = 1e30;
    for (int i = 0; i < calls; ++i) best = std::min(best, SecondsOf([&] { attention.Run(); }));
    const double products = TimeProducts(tiles, pairs * kHeadDim * 2);
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
