#include "kernels/matmul/matmul.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/api/testing/kernel_ways.h"
#include "kernels/matmul/matmul_internal.h"
#include "kernels/swiglu/swiglu.h"

namespace epic {
namespace {

using testing::KernelWay;

std::vector<float> RandomValues(size_t count, Rng* rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng->Gaussian());
  return values;
}

std::unique_ptr<const PackedMatrix> Pack(size_t outputs, size_t inputs, DType format,
                                         const std::vector<float>& w, ThreadPool* pool, KernelPath path,
                                         bool gated) {
  const auto reader = [&](size_t index, std::span<float> row) {
    std::copy_n(w.begin() + index * inputs, inputs, row.begin());
  };
  auto packed = gated ? PackGatedMatrix(outputs, inputs, format, reader, pool, path)
                      : PackMatrix(outputs, inputs, format, reader, pool, path);
  EXPECT_TRUE(packed.ok()) << packed.status().ToString();
  return std::move(packed).value();
}

float Rounded(DType format, float value) { return format == DType::kBf16 ? ToF32(ToBf16(value)) : value; }

DType InputFormat(const PackedMatrix& matrix) {
  return static_cast<const internal::MatMulMatrix&>(matrix).input_format();
}

// Behind `auto` only where the CPU has matrix tiles; oneDNN's other bf16 products test the code around it.
constexpr int64_t kOneDnn = -1;

std::vector<KernelWay> Ways() {
  std::vector<KernelWay> ways = testing::KernelWays();
  ways.push_back({"auto", KernelPath::kAuto});
  if (GetCpuFeatures().avx512_bf16) ways.push_back({"onednn", KernelPath::kCpu, kOneDnn});
  return ways;
}

class MatMulTest : public ::testing::TestWithParam<std::tuple<KernelWay, DType>> {
 protected:
  void SetUp() override {
    if (way().simd_target == kOneDnn && format() == DType::kF32)
      GTEST_SKIP() << "oneDNN is used for bf16 only";
  }
  std::unique_ptr<const PackedMatrix> PackThisWay(size_t outputs, size_t inputs, const std::vector<float>& w,
                                                  bool gated = false) {
    if (way().simd_target != kOneDnn) return Pack(outputs, inputs, format(), w, &pool_, way().path, gated);
    auto packed = internal::PackDnnl({outputs, inputs, gated}, [&](size_t index, std::span<float> row) {
      std::copy_n(w.begin() + index * inputs, inputs, row.begin());
    });
    EXPECT_TRUE(packed.ok()) << packed.status().ToString();
    return std::move(packed).value();
  }

  // The first `all` rows alone, in batches, on several numbers of threads.
  void ExpectSameBytesInEveryBatch(size_t outputs, size_t inputs, size_t all, bool gated = false) {
    Rng rng(12);
    const std::vector<float> w = RandomValues((gated ? 2 : 1) * outputs * inputs, &rng);
    const std::vector<float> x = RandomValues(all * inputs, &rng);
    const std::vector<float> bias = RandomValues(outputs, &rng);
    const auto matrix = PackThisWay(outputs, inputs, w, gated);
    const auto run = [&](size_t first, size_t rows, ThreadPool* pool) {
      std::vector<float> out(rows * outputs);
      MatMul({.x = x.data() + first * inputs,
              .rows = rows,
              .x_stride = inputs,
              .weights = matrix.get(),
              .bias = gated ? nullptr : bias.data(),
              .out = out.data(),
              .out_stride = outputs},
             pool);
      return out;
    };
    ThreadPool one(1), five(5);
    const std::vector<float> expected = run(0, all, &one);
    for (const size_t batch : {1u, 2u, 3u, 5u, 16u, 47u, 64u, 512u}) {
      if (batch > all) continue;
      for (ThreadPool* pool : {&one, &pool_, &five}) {
        for (size_t first = 0; first + batch <= all; first += std::max<size_t>(batch, all / 4 + 1)) {
          const std::vector<float> out = run(first, batch, pool);
          ASSERT_EQ(std::memcmp(out.data(), expected.data() + first * outputs, out.size() * sizeof(float)), 0)
              << "batch " << batch << " at " << first << " threads " << pool->threads();
        }
      }
    }
  }
  const KernelWay& way() const { return std::get<0>(GetParam()); }
  DType format() const { return std::get<1>(GetParam()); }

  const testing::ForcedSimdTarget forced_{std::max(way().simd_target, int64_t{0})};
  ThreadPool pool_{2};
};

// |error| <= K u sum|x w| for a chain of K fused steps (u = 2^-24), one more for the bias, one for the sum.
double Tolerance(size_t inputs, double magnitude) {
  return static_cast<double>(inputs + 2) * 0x1.0p-24 * magnitude;
}

TEST_P(MatMulTest, EqualsADoubleSumOverSizesAroundEveryTileBoundary) {
  Rng rng(11);
  for (const size_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 11u, 12u, 13u, 47u, 48u, 61u}) {
    for (const size_t outputs : {1u, 15u, 16u, 17u, 31u, 32u, 33u, 100u, 161u, 1057u}) {
      const size_t inputs = 1 + rng.Below(90);
      const bool with_bias = rng.Below(2) == 0;
      const bool accumulate = rng.Below(2) == 0;
      const size_t x_stride = inputs + rng.Below(3);
      const size_t out_stride = outputs + rng.Below(3);
      const std::vector<float> w = RandomValues(outputs * inputs, &rng);
      // One element of misalignment.
      const std::vector<float> x = RandomValues(1 + rows * x_stride, &rng);
      const std::vector<float> bias = RandomValues(1 + outputs, &rng);
      const std::vector<float> before = RandomValues(1 + rows * out_stride, &rng);
      std::vector<float> out = before;
      const auto matrix = PackThisWay(outputs, inputs, w);
      MatMul({.x = x.data() + 1,
              .rows = rows,
              .x_stride = x_stride,
              .weights = matrix.get(),
              .bias = with_bias ? bias.data() + 1 : nullptr,
              .out = out.data() + 1,
              .out_stride = out_stride,
              .accumulate = accumulate},
             &pool_);
      EXPECT_EQ(out[0], before[0]);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t n = 0; n < out_stride; ++n) {
          const size_t at = 1 + r * out_stride + n;
          if (n >= outputs) {
            ASSERT_EQ(out[at], before[at]) << "wrote between rows";
            continue;
          }
          double sum = 0, magnitude = 0;
          for (size_t k = 0; k < inputs; ++k) {
            const double product = double{Rounded(InputFormat(*matrix), x[1 + r * x_stride + k])} *
                                   Rounded(format(), w[n * inputs + k]);
            sum += product;
            magnitude += std::abs(product);
          }
          if (with_bias) sum += bias[1 + n];
          if (accumulate) sum += before[at];
          magnitude += std::abs(bias[1 + n]) + std::abs(before[at]);
          ASSERT_NEAR(out[at], sum, Tolerance(inputs, magnitude))
              << "rows " << rows << " outputs " << outputs << " inputs " << inputs << " at " << r << "," << n;
        }
      }
    }
  }
}

// Blocks of 32 rows and groups of 64 outputs (oneDNN), panels too wide to be widened first (beyond 4096
// inputs), and row blocks of half a second-level cache (60 rows at 5000 inputs).
TEST_P(MatMulTest, EqualsADoubleSumAroundTheBoundariesOfLargeProducts) {
  Rng rng(15);
  struct Shape {
    size_t rows, outputs, inputs;
  };
  for (const Shape& shape :
       {Shape{31, 40, 65}, Shape{32, 40, 65}, Shape{33, 40, 65}, Shape{63, 33, 64}, Shape{64, 33, 64},
        Shape{65, 33, 64}, Shape{48, 33, 4095}, Shape{48, 33, 4096}, Shape{48, 33, 4097}, Shape{47, 7, 4097},
        Shape{59, 7, 5000}, Shape{60, 7, 5000}, Shape{61, 7, 5000}, Shape{33, 130, 8192}}) {
    const std::vector<float> w = RandomValues(shape.outputs * shape.inputs, &rng);
    const std::vector<float> x = RandomValues(shape.rows * shape.inputs, &rng);
    std::vector<float> out(shape.rows * shape.outputs);
    const auto matrix = PackThisWay(shape.outputs, shape.inputs, w);
    MatMul({.x = x.data(),
            .rows = shape.rows,
            .x_stride = shape.inputs,
            .weights = matrix.get(),
            .out = out.data(),
            .out_stride = shape.outputs},
           &pool_);
    for (size_t at = 0; at < out.size(); ++at) {
      const float* x_row = x.data() + at / shape.outputs * shape.inputs;
      const float* w_row = w.data() + at % shape.outputs * shape.inputs;
      double sum = 0, magnitude = 0;
      for (size_t k = 0; k < shape.inputs; ++k) {
        const double product = double{Rounded(InputFormat(*matrix), x_row[k])} * Rounded(format(), w_row[k]);
        sum += product;
        magnitude += std::abs(product);
      }
      ASSERT_NEAR(out[at], sum, Tolerance(shape.inputs, magnitude))
          << "rows " << shape.rows << " outputs " << shape.outputs << " inputs " << shape.inputs << " at "
          << at;
    }
  }
}

TEST_P(MatMulTest, ARowHasTheSameBytesInEveryBatchAndOnEveryNumberOfThreads) {
  // The slow reference takes fewer rows.
  ExpectSameBytesInEveryBatch(203, 576, way().path == KernelPath::kReference ? 64 : 512);
}

// The outputs of one call of oneDNN are fewer the more inputs there are.
TEST_P(MatMulTest, ARowHasTheSameBytesInEveryBatchWhereOutputsGoInGroups) {
  if (way().simd_target != kOneDnn) GTEST_SKIP() << "oneDNN's groups only";
  ExpectSameBytesInEveryBatch(150, 8192, 70);
}

// Gated products against SwiGlu of the two products: the same sums, and the same gate.
TEST_P(MatMulTest, AGatedProductIsTheGateOfBothProducts) {
  Rng rng(16);
  struct Shape {
    size_t rows, outputs, inputs;
  };
  for (const Shape& shape :
       {Shape{1, 1, 1}, Shape{3, 33, 40}, Shape{11, 150, 64}, Shape{13, 31, 70}, Shape{61, 520, 90},
        Shape{64, 100, 300}, Shape{50, 33, 4100}, Shape{5, 70, 9000}}) {
    const std::vector<float> w = RandomValues(2 * shape.outputs * shape.inputs, &rng);
    const std::vector<float> x = RandomValues(shape.rows * shape.inputs, &rng);
    const auto both = PackThisWay(2 * shape.outputs, shape.inputs, w);
    const auto gated = PackThisWay(shape.outputs, shape.inputs, w, true);
    EXPECT_TRUE(gated->gated());
    EXPECT_FALSE(both->gated());
    EXPECT_EQ(gated->outputs(), shape.outputs);
    std::vector<float> sums(shape.rows * 2 * shape.outputs);
    MatMulArgs args = {.x = x.data(),
                       .rows = shape.rows,
                       .x_stride = shape.inputs,
                       .weights = both.get(),
                       .out = sums.data(),
                       .out_stride = 2 * shape.outputs};
    MatMul(args, &pool_);
    const size_t stride = shape.outputs + rng.Below(3);
    std::vector<float> expected(shape.rows * stride, 3.0f), out = expected;
    const bool is_reference = way().path == KernelPath::kReference;
    const bool exact = !is_reference && InputFormat(*gated) == DType::kF32;
    SwiGlu({.gate = sums.data(),
            .up = sums.data() + shape.outputs,
            .in_stride = 2 * shape.outputs,
            .rows = shape.rows,
            .dim = shape.outputs,
            .out = expected.data(),
            .out_stride = stride},
           &pool_, is_reference ? KernelPath::kReference : KernelPath::kCpu);
    args.weights = gated.get();
    args.out = out.data();
    args.out_stride = stride;
    MatMul(args, &pool_);
    for (size_t i = 0; i < out.size(); ++i) {
      // The reference rounds once, not twice; oneDNN may sum in another order in groups of another width.
      const double most = std::abs(expected[i]) * 1e-4 + 1e-4 * std::sqrt(static_cast<double>(shape.inputs));
      ASSERT_NEAR(out[i], expected[i], exact ? 0 : most)
          << shape.rows << " " << shape.outputs << " " << shape.inputs << " at " << i;
    }
  }
}

TEST_P(MatMulTest, AGatedRowHasTheSameBytesInEveryBatch) {
  ExpectSameBytesInEveryBatch(203, 576, way().path == KernelPath::kReference ? 20 : 100, true);
}

TEST_P(MatMulTest, ANanInOneRowStaysInThatRow) {
  Rng rng(13);
  constexpr size_t kOutputs = 40, kInputs = 33;
  for (const size_t rows : {3u, 13u, 60u}) {
    const std::vector<float> w = RandomValues(kOutputs * kInputs, &rng);
    std::vector<float> x = RandomValues(rows * kInputs, &rng);
    const auto matrix = PackThisWay(kOutputs, kInputs, w);
    std::vector<float> clean(rows * kOutputs), out(rows * kOutputs);
    MatMulArgs args = {.x = x.data(),
                       .rows = rows,
                       .x_stride = kInputs,
                       .weights = matrix.get(),
                       .out = clean.data(),
                       .out_stride = kOutputs};
    MatMul(args, &pool_);
    x[kInputs + 7] = std::nanf("");
    args.out = out.data();
    MatMul(args, &pool_);
    for (size_t i = 0; i < out.size(); ++i) {
      if (i / kOutputs == 1) {
        EXPECT_TRUE(std::isnan(out[i]));
      } else {
        EXPECT_EQ(out[i], clean[i]);
      }
    }
  }
}

TEST_P(MatMulTest, NoRowsIsANoOpAndSizesAreReported) {
  const auto matrix = PackThisWay(5, 7, std::vector<float>(35, 1.0f));
  EXPECT_EQ(matrix->outputs(), 5u);
  EXPECT_EQ(matrix->inputs(), 7u);
  EXPECT_EQ(matrix->format(), format());
  EXPECT_GE(matrix->bytes(), 35 * SizeOf(format()));
  MatMul({.x = nullptr, .rows = 0, .weights = matrix.get()}, &pool_);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, MatMulTest,
                         ::testing::Combine(::testing::ValuesIn(Ways()),
                                            ::testing::Values(DType::kF32, DType::kBf16)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name +
                                  (std::get<1>(info.param) == DType::kF32 ? "_f32" : "_bf16");
                         });

TEST(MatMulToleranceTest, CatchesWeightsRoundedToTheWrongFormat) {
  Rng rng(14);
  constexpr size_t kInputs = 64;
  const std::vector<float> x = RandomValues(kInputs, &rng);
  int caught = 0;
  for (int column = 0; column < 100; ++column) {
    const std::vector<float> w = RandomValues(kInputs, &rng);
    double exact = 0, rounded = 0, magnitude = 0;
    for (size_t k = 0; k < kInputs; ++k) {
      exact += double{x[k]} * w[k];
      rounded += double{x[k]} * ToF32(ToBf16(w[k]));
      magnitude += std::abs(double{x[k]} * w[k]);
    }
    caught += std::abs(exact - rounded) > Tolerance(kInputs, magnitude) ? 1 : 0;
  }
  EXPECT_GT(caught, 90);
}

TEST(MatMulFormatTest, Bf16IsBestWhereTheCpuMultipliesIt) {
  const CpuFeatures& cpu = GetCpuFeatures();
  EXPECT_EQ(BestMatMulFormat() == DType::kBf16, cpu.avx512_bf16 || cpu.amx_bf16);
}

}  // namespace
}  // namespace epic
