#include "kernels/quantized_matmul/quantized_matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/random.h"
#include "kernels/quantized_matmul/quantized_matmul_internal.h"

namespace epic {
namespace {

using internal::QuantizedTarget;

size_t GroupsFor(size_t inputs) { return (inputs + kQuantizedGroup - 1) / kQuantizedGroup; }

// Weights in groups, and what they stand for.
struct RandomWeights {
  RandomWeights(size_t n, size_t k, uint32_t level_bits, Rng* rng)
      : outputs(n), inputs(k), bits(level_bits), groups(n * GroupsFor(k)) {
    for (QuantizedGroup& group : groups) {
      // Scales of half precision, so that packing is exact.
      group.scale = internal::F32FromHalf(internal::HalfFrom(static_cast<float>(0.01 + rng->Uniform())));
      group.minimum = internal::F32FromHalf(internal::HalfFrom(static_cast<float>(rng->Gaussian())));
      for (uint8_t& level : group.levels) level = static_cast<uint8_t>(rng->Below(uint64_t{1} << bits));
    }
  }
  GroupReader Reader() const {
    return [this](size_t index, std::span<QuantizedGroup> row) {
      std::copy_n(groups.begin() + static_cast<ptrdiff_t>(index * row.size()), row.size(), row.begin());
    };
  }
  double Weight(size_t n, size_t k) const {
    const QuantizedGroup& group = groups[n * GroupsFor(inputs) + k / kQuantizedGroup];
    return double{group.scale} * group.levels[k % kQuantizedGroup] + group.minimum;
  }
  size_t outputs;
  size_t inputs;
  uint32_t bits;
  std::vector<QuantizedGroup> groups;
};

std::vector<float> RandomValues(size_t count, Rng* rng) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(rng->Gaussian());
  return values;
}

// What a row of x is rounded to, from the formula.
std::vector<double> RoundedRow(const float* x, size_t count) {
  std::vector<double> rounded(count);
  for (size_t k = 0; k < count; ++k) {
    const size_t begin = k / kQuantizedGroup * kQuantizedGroup;
    float highest = 0;
    for (size_t i = begin; i < std::min(count, begin + kQuantizedGroup); ++i) {
      highest = std::max(highest, std::fabs(x[i]));
    }
    if (highest >= internal::kSmallestMagnitude) {
      rounded[k] = std::nearbyint(x[k] * (127.0f / highest)) * double{highest / 127.0f};
    }
  }
  return rounded;
}

struct Way {
  std::string name;
  bool reference = false;
  QuantizedTarget target = QuantizedTarget::kPortable;
};

std::vector<Way> Ways() {
  return {{.name = "reference", .reference = true},
          {.name = "portable"},
          {.name = "avx2", .target = QuantizedTarget::kAvx2},
          {.name = "avx512_vnni", .target = QuantizedTarget::kAvx512Vnni}};
}

class QuantizedMatMulTest : public ::testing::TestWithParam<std::tuple<Way, uint32_t>> {
 protected:
  void SetUp() override {
    if (!way().reference && !internal::IsSupported(way().target)) GTEST_SKIP() << "this CPU lacks it";
  }
  const Way& way() const { return std::get<0>(GetParam()); }
  uint32_t bits() const { return std::get<1>(GetParam()); }
  std::unique_ptr<const QuantizedMatrix> Pack(const RandomWeights& w) {
    auto packed =
        way().reference
            ? internal::PackQuantizedReference(w.outputs, w.inputs, w.bits, w.Reader(), &pool_)
            : internal::PackQuantizedCpu(w.outputs, w.inputs, w.bits, w.Reader(), &pool_, way().target);
    EXPECT_TRUE(packed.ok()) << packed.status().ToString();
    return std::move(packed).value();
  }

  ThreadPool pool_{2};
};

TEST_P(QuantizedMatMulTest, EqualsADoubleSumOfRoundedRowsOverSizesAroundEveryBoundary) {
  Rng rng(71);
  for (const size_t rows : {1u, 2u, 3u, 4u, 5u, 7u, 31u, 32u, 33u, 65u}) {
    for (const size_t outputs : {1u, 15u, 16u, 17u, 63u, 64u, 65u, 129u}) {
      for (const size_t inputs : {1u, 31u, 32u, 33u, 64u, 97u}) {
        const RandomWeights w(outputs, inputs, bits(), &rng);
        const bool with_bias = rng.Below(2) == 0;
        const bool accumulate = rng.Below(2) == 0;
        const size_t x_stride = inputs + rng.Below(3);
        const size_t out_stride = outputs + rng.Below(3);
        const std::vector<float> x = RandomValues(1 + rows * x_stride, &rng);  // one element of misalignment
        const std::vector<float> bias = RandomValues(1 + outputs, &rng);
        const std::vector<float> before = RandomValues(1 + rows * out_stride, &rng);
        std::vector<float> out = before;
        const auto matrix = Pack(w);
        ASSERT_EQ(matrix->bits(), bits());
        QuantizedMatMul({.x = x.data() + 1,
                         .rows = rows,
                         .x_stride = x_stride,
                         .weights = matrix.get(),
                         .bias = with_bias ? bias.data() + 1 : nullptr,
                         .out = out.data() + 1,
                         .out_stride = out_stride,
                         .accumulate = accumulate},
                        &pool_);
        ASSERT_EQ(out[0], before[0]);
        for (size_t r = 0; r < rows; ++r) {
          const std::vector<double> rounded = RoundedRow(x.data() + 1 + r * x_stride, inputs);
          for (size_t n = 0; n < out_stride; ++n) {
            const size_t at = 1 + r * out_stride + n;
            if (n >= outputs) {
              ASSERT_EQ(out[at], before[at]);
              continue;
            }
            double sum = 0, magnitude = 0;
            for (size_t k = 0; k < inputs; ++k) {
              const double term = rounded[k] * w.Weight(n, k);
              sum += term;
              // The scale's and the minimum's parts are summed apart.
              const QuantizedGroup& group = w.groups[n * GroupsFor(inputs) + k / kQuantizedGroup];
              magnitude +=
                  std::fabs(rounded[k]) *
                  (std::fabs(group.scale) * group.levels[k % kQuantizedGroup] + std::fabs(group.minimum));
            }
            if (with_bias) sum += bias[1 + n];
            if (accumulate) sum += before[at];
            magnitude += std::fabs(bias[1 + n]) + std::fabs(before[at]);
            // Integers are exact; a group adds five roundings, each below 2^-24 of what it has summed.
            const double steps = 5.0 * static_cast<double>(GroupsFor(inputs)) + 4;
            ASSERT_NEAR(out[at], sum, steps * 0x1.0p-24 * magnitude)
                << rows << " x " << outputs << " x " << inputs << " at " << r << ", " << n;
          }
        }
      }
    }
  }
}

TEST_P(QuantizedMatMulTest, ARowHasTheSameBytesAloneAndInAnyCompany) {
  Rng rng(72);
  const RandomWeights w(200, 96, bits(), &rng);
  const auto matrix = Pack(w);
  const std::vector<float> x = RandomValues(70 * 96, &rng);
  std::vector<float> alone(70 * 200);
  QuantizedMatMulArgs args = {.x_stride = 96, .weights = matrix.get(), .out_stride = 200};
  for (size_t r = 0; r < 70; ++r) {
    args.x = x.data() + r * 96;
    args.rows = 1;
    args.out = alone.data() + r * 200;
    QuantizedMatMul(args, nullptr);
  }
  for (const size_t rows : {2u, 5u, 16u, 64u, 70u}) {
    std::vector<float> together(rows * 200);
    args.x = x.data();
    args.rows = rows;
    args.out = together.data();
    QuantizedMatMul(args, &pool_);
    ASSERT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0) << rows;
  }
}

TEST_P(QuantizedMatMulTest, AValueThatIsNotFiniteMakesItsRowNanAndNoOther) {
  Rng rng(73);
  const RandomWeights w(33, 64, bits(), &rng);
  const auto matrix = Pack(w);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = RandomValues(5 * 64, &rng);
    x[2 * 64 + 40] = bad;
    std::vector<float> out(5 * 33);
    QuantizedMatMul({.x = x.data(),
                     .rows = 5,
                     .x_stride = 64,
                     .weights = matrix.get(),
                     .out = out.data(),
                     .out_stride = 33},
                    &pool_);
    for (size_t at = 0; at < out.size(); ++at) ASSERT_EQ(std::isnan(out[at]), at / 33 == 2) << at;
  }
}

TEST_P(QuantizedMatMulTest, ScalesOutsideHalfPrecisionKeepElevenBits) {
  Rng rng(74);
  for (const float size : {1e-20f, 1e-6f, 3e5f, 1e20f}) {
    RandomWeights w(20, 64, bits(), &rng);
    for (QuantizedGroup& group : w.groups) {
      group.scale *= size;
      group.minimum *= size;
    }
    const auto matrix = Pack(w);
    std::vector<float> x(64);
    x[5] = 1.0f;
    std::vector<float> out(20);
    QuantizedMatMul({.x = x.data(),
                     .rows = 1,
                     .x_stride = 64,
                     .weights = matrix.get(),
                     .out = out.data(),
                     .out_stride = 20},
                    &pool_);
    for (size_t n = 0; n < 20; ++n) {
      const QuantizedGroup& group = w.groups[n * 2];
      const double magnitude = std::fabs(group.scale) * group.levels[5] + std::fabs(group.minimum);
      ASSERT_NEAR(out[n], w.Weight(n, 5), magnitude * 0x1.1p-11);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, QuantizedMatMulTest,
                         ::testing::Combine(::testing::ValuesIn(Ways()), ::testing::Values(4u, 8u)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(QuantizedRowTest, EveryImplementationRoundsToTheSameBytes) {
  Rng rng(75);
  for (const size_t count : {1u, 31u, 32u, 33u, 64u, 1000u}) {
    std::vector<float> x = RandomValues(count, &rng);
    for (const double magnitude : {1.0, 1e-31, 1e30}) {
      for (float& value : x) value = static_cast<float>(value * magnitude);
      const size_t groups = GroupsFor(count);
      std::vector<int8_t> expected(groups * kQuantizedGroup), levels(groups * kQuantizedGroup);
      std::vector<float> head(2 * groups), other(2 * groups);
      internal::RoundRowPortable(x.data(), count, {expected.data(), head.data(), head.data() + groups});
      if (internal::IsSupported(QuantizedTarget::kAvx2)) {
        internal::RoundRowAvx2(x.data(), count, {levels.data(), other.data(), other.data() + groups});
        EXPECT_EQ(levels, expected);
        EXPECT_EQ(other, head);
      }
      if (internal::IsSupported(QuantizedTarget::kAvx512Vnni)) {
        internal::RoundRowAvx512(x.data(), count, {levels.data(), other.data(), other.data() + groups});
        EXPECT_EQ(levels, expected);
        EXPECT_EQ(other, head);
      }
    }
  }
}

TEST(QuantizedGroupTest, LevelsOfPlainValuesAreOffByHalfAScaleAtMost) {
  Rng rng(76);
  for (const size_t size : {1u, 2u, 31u, 32u}) {
    const std::vector<float> values = RandomValues(size, &rng);
    const QuantizedGroup group = QuantizeGroup(values);
    for (size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(group.scale * group.levels[i] + group.minimum, values[i], group.scale * 0.501f + 1e-6f);
    }
  }
  const std::vector<float> equal(32, -0.25f);
  EXPECT_EQ(QuantizeGroup(equal).minimum, -0.25f);
  EXPECT_EQ(QuantizeGroup(equal).scale, 0.0f);
  const std::vector<float> bad = {1.0f, std::nanf(""), 2.0f};
  EXPECT_TRUE(std::isnan(QuantizeGroup(bad).scale));
}

TEST(HalfPrecisionTest, EveryFiniteHalfSurvivesAndMidpointsGoToTheEvenOne) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    if ((half & 0x7c00) == 0x7c00) continue;
    const float value = internal::F32FromHalf(static_cast<uint16_t>(half));
    ASSERT_EQ(internal::HalfFrom(value), half);
    const uint32_t next = half + 1;
    if ((next & 0x7c00) == 0x7c00 || (half & 0x7fff) == 0x7fff) continue;
    const float middle = (value + internal::F32FromHalf(static_cast<uint16_t>(next))) / 2;
    if ((half ^ next) & 0x8000) continue;
    ASSERT_EQ(internal::HalfFrom(middle), (half & 1) == 0 ? half : next);
  }
}

}  // namespace
}  // namespace epic
