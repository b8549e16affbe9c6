// Decode's products at the shapes of a 135M model: weights of 4 and 8 bits beside bf16 ones, in GB/s of
// weights in the best iteration and % of a measured loop that only reads as much memory.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "kernels/api/roof.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quantized_matmul/quantized_matmul.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 2;
// Of copies of a matrix that are multiplied in turn: more than the caches hold, as in a model.
constexpr size_t kWorkingSet = size_t{192} << 20;

ThreadPool* Pool() {
  static ThreadPool pool(kThreads);
  return &pool;
}

double Roof() {
  static const double roof = MeasureReadRoof(Pool(), kWorkingSet);
  return roof;
}

std::vector<float> RandomValues(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng.Uniform() - 0.5);
  return values;
}

// Times rounds over all copies; the best one says what the code can do when others use the machine too.
template <typename Fn>
void Measure(benchmark::State& state, size_t copies, size_t bytes, const Fn& fn) {
  double best = 1e30;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t copy = 0; copy < copies; ++copy) fn(copy);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / static_cast<double>(copies));
  }
  state.counters["best_us"] = best * 1e6;
  state.counters["GB/s"] = static_cast<double>(bytes) / best * 1e-9;
  state.counters["roof%"] = 100 * static_cast<double>(bytes) / best / Roof();
}

// Arguments: rows, outputs, inputs, bits (16: bf16 by kernels/matmul).
void BM_QuantizedMatMul(benchmark::State& state) {
  const size_t rows = state.range(0), outputs = state.range(1), inputs = state.range(2);
  const auto bits = static_cast<uint32_t>(state.range(3));
  const std::vector<float> w = RandomValues(outputs * inputs, 1);
  const std::vector<float> x = RandomValues(rows * inputs, 2);
  std::vector<float> out(rows * outputs);
  const GroupReader reader = [&](size_t index, std::span<QuantizedGroup> groups) {
    for (size_t g = 0; g < groups.size(); ++g) {
      const float* from = w.data() + index * inputs + g * kQuantizedGroup;
      groups[g] = QuantizeGroup({from, kQuantizedGroup});
      if (bits == 8) continue;
      groups[g].scale *= 255.0f / 15.0f;
      for (uint8_t& level : groups[g].levels) level = static_cast<uint8_t>(level / 17);
    }
  };
  std::vector<std::unique_ptr<const QuantizedMatrix>> copies;
  do {
    copies.push_back(PackQuantized(outputs, inputs, bits, reader, Pool()).value());
  } while (copies.size() * copies[0]->bytes() < kWorkingSet);
  const auto multiply = [&](size_t copy) {
    QuantizedMatMul({.x = x.data(),
                     .rows = rows,
                     .x_stride = inputs,
                     .weights = copies[copy].get(),
                     .out = out.data(),
                     .out_stride = outputs},
                    Pool());
  };
  multiply(0);
  double expected = 0;
  for (size_t k = 0; k < inputs; ++k) expected += double{x[k]} * w[k];
  if (std::abs(expected - out[0]) > (bits == 8 ? 0.01 : 0.05) * std::sqrt(static_cast<double>(inputs))) {
    state.SkipWithError("wrong result");
    return;
  }
  Measure(state, copies.size(), copies[0]->bytes(), multiply);
}

void BM_MatMulBf16(benchmark::State& state) {
  const size_t rows = state.range(0), outputs = state.range(1), inputs = state.range(2);
  const std::vector<float> w = RandomValues(outputs * inputs, 1);
  const std::vector<float> x = RandomValues(rows * inputs, 2);
  std::vector<float> out(rows * outputs);
  std::vector<std::unique_ptr<const PackedMatrix>> copies;
  do {
    copies.push_back(PackMatrix(
                         outputs, inputs, DType::kBf16,
                         [&](size_t index, std::span<float> row) {
                           std::copy_n(w.begin() + static_cast<ptrdiff_t>(index * inputs), inputs,
                                       row.begin());
                         },
                         Pool())
                         .value());
  } while (copies.size() * copies[0]->bytes() < kWorkingSet);
  Measure(state, copies.size(), copies[0]->bytes(), [&](size_t copy) {
    MatMul({.x = x.data(),
            .rows = rows,
            .x_stride = inputs,
            .weights = copies[copy].get(),
            .out = out.data(),
            .out_stride = outputs},
           Pool());
  });
}

void Shapes(benchmark::internal::Benchmark* bench, std::initializer_list<int64_t> bits) {
  bench->ArgNames({"rows", "outputs", "inputs", "bits"});
  for (const int64_t rows : {1, 8, 32}) {
    for (const int64_t width : bits) {
      bench->Args({rows, 960, 576, width})->Args({rows, 576, 576, width})->Args({rows, 3072, 576, width});
      bench->Args({rows, 576, 1536, width})->Args({rows, 49152, 576, width});
    }
  }
  bench->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(BM_QuantizedMatMul)->Apply([](auto* bench) { Shapes(bench, {4, 8}); });
BENCHMARK(BM_MatMulBf16)->Apply([](auto* bench) { Shapes(bench, {16}); });

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
