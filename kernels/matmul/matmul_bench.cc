// Products at the shapes of a 135M model, ours beside bare oneDNN, in GFLOP/s of the
// best iteration and % of the measured FMA roof.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/roof.h"
#include "kernels/matmul/matmul.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 2;

ThreadPool* Pool() {
  static ThreadPool pool(kThreads);
  return &pool;
}

double Roof() {
  static const double roof = MeasureFmaRoof(Pool());
  return roof;
}

std::vector<float> RandomValues(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.Uniform() - 0.5);
  return values;
}

// Times every iteration by itself: the best one says what the code can do when others use the machine too.
template <typename Fn>
void Measure(benchmark::State& state, double flop, const Fn& fn) {
  double best = 1e30;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  state.counters["best_GFLOPS"] = flop / best * 1e-9;
  state.counters["roof%"] = 100 * flop / best / Roof();
}

// Ours. Arguments: rows, outputs, inputs, bf16.
void BM_MatMul(benchmark::State& state) {
  const size_t rows = state.range(0), outputs = state.range(1), inputs = state.range(2);
  const DType format = state.range(3) != 0 ? DType::kBf16 : DType::kF32;
  const std::vector<float> w = RandomValues(outputs * inputs, 1);
  const std::vector<float> x = RandomValues(rows * inputs, 2);
  std::vector<float> out(rows * outputs);
  const auto matrix = PackMatrix(
      outputs, inputs, format,
      [&](size_t index, std::span<float> row) {
        std::copy_n(w.begin() + index * inputs, inputs, row.begin());
      },
      Pool());
  const MatMulArgs args = {.x = x.data(),
                           .rows = rows,
                           .x_stride = inputs,
                           .weights = matrix->get(),
                           .out = out.data(),
                           .out_stride = outputs};
  MatMul(args, Pool());
  double expected = 0;
  for (size_t k = 0; k < inputs; ++k) expected += double{x[k]} * w[k];
  if (std::abs(expected - out[0]) > 0.01 * std::sqrt(static_cast<double>(inputs))) {
    state.SkipWithError("wrong result");
    return;
  }
  Measure(state, 2.0 * static_cast<double>(rows * outputs * inputs), [&] { MatMul(args, Pool()); });
}

// Bare oneDNN on as many threads of its own.
void BM_OneDnn(benchmark::State& state) {
  const int64_t rows = state.range(0), outputs = state.range(1), inputs = state.range(2);
  const auto type = state.range(3) != 0 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  omp_set_num_threads(kThreads);
  {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    using Tag = dnnl::memory::format_tag;
    const dnnl::memory::desc x({rows, inputs}, type, Tag::ab);
    const dnnl::memory::desc w({inputs, outputs}, type, Tag::any);
    const dnnl::memory::desc out({rows, outputs}, dnnl::memory::data_type::f32, Tag::ab);
    const dnnl::matmul::primitive_desc description({x, w, out}, engine);
    const dnnl::matmul product(description);
    dnnl::memory x_memory(x, engine), out_memory(out, engine), w_memory(description.weights_desc(), engine);
    std::memset(x_memory.get_data_handle(), 0, x.get_size());
    std::memset(w_memory.get_data_handle(), 0, description.weights_desc().get_size());
    Measure(state, 2.0 * static_cast<double>(rows * outputs * inputs), [&] {
      product.execute(stream,
                      {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, w_memory}, {DNNL_ARG_DST, out_memory}});
      stream.wait();
    });
  }
  omp_set_num_threads(1);
}

void Shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "outputs", "inputs", "bf16"});
  for (const int64_t bf16 : {1, 0}) {
    bench->Args({512, 960, 576, bf16})->Args({512, 576, 576, bf16})->Args({512, 3072, 576, bf16});
    bench->Args({512, 576, 1536, bf16})->Args({192, 3072, 576, bf16})->Args({16, 3072, 576, bf16});
    bench->Args({4, 3072, 576, bf16})->Args({1, 3072, 576, bf16})->Args({1, 49152, 576, bf16});
  }
  bench->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(BM_MatMul)->Apply(Shapes);
BENCHMARK(BM_OneDnn)->Apply(Shapes);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
