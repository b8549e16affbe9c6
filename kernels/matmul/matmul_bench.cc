// Products at the shapes of a 135M model, ours beside bare oneDNN, in GFLOP/s of the
// best iteration and % of the measured FMA roof. BM_Tiles is the path for matrix tiles: without them it shows
// what the code around oneDNN costs.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <dnnl.hpp>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/api/bench_harness.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_internal.h"

namespace epic {
namespace {

using bench::Pool;
using bench::RandomValues;

// A product's inputs, and what some of its rows must give: the reference's sums in double of the same
// weights.
struct Problem {
  Problem(size_t rows, size_t outputs, size_t inputs, DType format)
      : rows(rows),
        outputs(outputs),
        inputs(inputs),
        format(format),
        w(RandomValues(outputs * inputs, 1)),
        x(RandomValues(rows * inputs, 2)) {}

  std::unique_ptr<const PackedMatrix> Pack(KernelPath path) const {
    auto packed = PackMatrix(outputs, inputs, format, Reader(), Pool(), path);
    return packed.ok() ? std::move(packed).value() : nullptr;
  }
  std::unique_ptr<const PackedMatrix> PackForTiles() const {
    auto packed = internal::PackDnnl({outputs, inputs}, Reader());
    return packed.ok() ? std::move(packed).value() : nullptr;
  }
  RowReader Reader() const {
    return [this](size_t index, std::span<float> row) {
      std::copy_n(w.begin() + index * inputs, inputs, row.begin());
    };
  }
  MatMulArgs Args(const PackedMatrix* matrix, size_t first, size_t count, float* out) const {
    return {.x = x.data() + first * inputs,
            .rows = count,
            .x_stride = inputs,
            .weights = matrix,
            .out = out,
            .out_stride = outputs};
  }
  // The first, the last and some rows between. Sums of `inputs` products below 1/4 each: rounding to bf16
  // (where x is rounded at all) moves one by 2^-8 of it, and the signs are random.
  bool Agrees(std::span<const float> out) const {
    const std::unique_ptr<const PackedMatrix> reference = Pack(KernelPath::kReference);
    const double most =
        (format == DType::kBf16 ? 0x1.0p-8 : 0x1.0p-20) * std::sqrt(static_cast<double>(inputs));
    std::vector<float> expected(outputs);
    for (size_t row = 0; row < rows; row += std::max<size_t>(1, (rows - 1) / 4)) {
      MatMul(Args(reference.get(), row, 1, expected.data()), Pool());
      if (!bench::Agree(out.subspan(row * outputs, outputs), expected, most)) return false;
    }
    return true;
  }
  double Flop() const { return 2.0 * static_cast<double>(rows * outputs * inputs); }

  const size_t rows, outputs, inputs;
  const DType format;
  const std::vector<float> w;  // [outputs][inputs]
  const std::vector<float> x;  // [rows][inputs]
};

Problem ProblemOf(const benchmark::State& state) {
  return Problem(state.range(0), state.range(1), state.range(2),
                 state.range(3) != 0 ? DType::kBf16 : DType::kF32);
}

void RunOurs(benchmark::State& state, const Problem& problem, std::unique_ptr<const PackedMatrix> matrix) {
  if (matrix == nullptr) return state.SkipWithError("no product in this format on this CPU");
  std::vector<float> out(problem.rows * problem.outputs);
  const MatMulArgs args = problem.Args(matrix.get(), 0, problem.rows, out.data());
  MatMul(args, Pool());
  if (!problem.Agrees(out)) return state.SkipWithError("wrong result");
  bench::ReportFlop(state, problem.Flop(), bench::BestSeconds(state, [&] { MatMul(args, Pool()); }));
}

// Ours. Arguments: rows, outputs, inputs, bf16.
void BM_MatMul(benchmark::State& state) {
  const Problem problem = ProblemOf(state);
  RunOurs(state, problem, problem.Pack(KernelPath::kAuto));
}

void BM_Tiles(benchmark::State& state) {
  const Problem problem = ProblemOf(state);
  RunOurs(state, problem, problem.PackForTiles());
}

// The bytes of `values` as a memory of oneDNN has them.
template <typename T>
dnnl::memory PlainMemory(const dnnl::memory::desc& desc, const dnnl::engine& engine,
                         const std::vector<T>& values) {
  dnnl::memory memory(desc, engine);
  std::memcpy(memory.get_data_handle(), values.data(), desc.get_size());
  return memory;
}

dnnl::memory MemoryOf(const dnnl::memory::desc& desc, const dnnl::engine& engine,
                      const std::vector<float>& values, DType format) {
  if (format == DType::kF32) return PlainMemory(desc, engine, values);
  std::vector<Bf16> rounded;
  for (const float value : values) rounded.push_back(ToBf16(value));
  return PlainMemory(desc, engine, rounded);
}

// Bare oneDNN on as many threads of its own.
void RunOneDnn(benchmark::State& state) {
  const Problem problem = ProblemOf(state);
  const auto rows = static_cast<int64_t>(problem.rows), outputs = static_cast<int64_t>(problem.outputs);
  const auto inputs = static_cast<int64_t>(problem.inputs);
  using Type = dnnl::memory::data_type;
  using Tag = dnnl::memory::format_tag;
  const Type type = problem.format == DType::kBf16 ? Type::bf16 : Type::f32;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc x({rows, inputs}, type, Tag::ab);
  const dnnl::memory::desc out({rows, outputs}, Type::f32, Tag::ab);
  const dnnl::matmul::primitive_desc plan({x, dnnl::memory::desc({inputs, outputs}, type, Tag::any), out},
                                          engine);
  const dnnl::matmul product(plan);
  dnnl::memory x_memory = MemoryOf(x, engine, problem.x, problem.format);
  dnnl::memory plain = MemoryOf({{inputs, outputs}, type, Tag::ba}, engine, problem.w, problem.format);
  dnnl::memory out_memory(out, engine), w_memory(plan.weights_desc(), engine);
  dnnl::reorder(plain, w_memory).execute(stream, plain, w_memory);
  const auto run = [&] {
    product.execute(stream,
                    {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, w_memory}, {DNNL_ARG_DST, out_memory}});
    stream.wait();
  };
  run();
  if (!problem.Agrees(
          {static_cast<const float*>(out_memory.get_data_handle()), problem.rows * problem.outputs})) {
    return state.SkipWithError("wrong result");
  }
  bench::ReportFlop(state, problem.Flop(), bench::BestSeconds(state, run));
}

void BM_OneDnn(benchmark::State& state) {
  omp_set_num_threads(bench::kThreads);
  try {
    RunOneDnn(state);
  } catch (const dnnl::error& error) {
    state.SkipWithError(error.what());
  }
  omp_set_num_threads(1);
}

void ShapesIn(int64_t bf16, benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "outputs", "inputs", "bf16"});
  bench->Args({512, 960, 576, bf16})->Args({512, 576, 576, bf16})->Args({512, 3072, 576, bf16});
  bench->Args({512, 576, 1536, bf16})->Args({192, 3072, 576, bf16})->Args({16, 3072, 576, bf16});
  bench->Args({4, 3072, 576, bf16})->Args({1, 3072, 576, bf16})->Args({1, 49152, 576, bf16});
  bench->UseRealTime()->Unit(benchmark::kMillisecond);
}

void Bf16Shapes(benchmark::internal::Benchmark* bench) { ShapesIn(1, bench); }
void Shapes(benchmark::internal::Benchmark* bench) {
  ShapesIn(1, bench);
  ShapesIn(0, bench);
}

BENCHMARK(BM_MatMul)->Apply(Shapes);
BENCHMARK(BM_Tiles)->Apply(Bf16Shapes);
BENCHMARK(BM_OneDnn)->Apply(Shapes);

}  // namespace
}  // namespace epic

BENCHMARK_MAIN();
