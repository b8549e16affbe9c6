#include "kernels/rms_norm/rms_norm_cuda_sweep.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/rms_norm/rms_norm_cuda.h"
#include "kernels/rms_norm/rms_norm_internal.h"
#include "kernels/simt/device_memory.h"

namespace epic {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Shape {
  size_t dim, groups, rows, stride;
  bool adds, to_bf16;
};

// x, add and what the kernel made of them, all [rows][stride].
class Case {
 public:
  Case(const Shape& shape, Rng* rng)
      : shape_(shape),
        x_(simt::RandomFloats(shape.rows * shape.stride, rng)),
        add_(simt::RandomFloats(shape.rows * shape.stride, rng)),
        weight_(simt::RandomFloats(shape.dim, rng)),
        device_add_(add_),
        device_weight_(weight_) {}

  std::vector<float>& x() { return x_; }

  // Rows [first, first + count); `out` and `sum` get what lies at those rows, with 3 where nothing was
  // written.
  GpuStatus Run(size_t first, size_t count, std::vector<float>* out, std::vector<float>* sum) {
    const size_t begin = first * shape_.stride, size = count * shape_.stride;
    simt::DeviceArray<float> x(std::span<const float>(x_.data() + begin, size)), result(size, 3.0f);
    simt::DeviceArray<Bf16> rounded(size, ToBf16(3.0f));
    RmsNormCudaArgs args;
    args.norm = {.x = x.data(),
                 .x_stride = shape_.stride,
                 .rows = count,
                 .groups = shape_.groups,
                 .dim = shape_.dim,
                 .weight = device_weight_.data(),
                 .epsilon = kEpsilon,
                 .out = result.data(),
                 .out_stride = shape_.stride};
    if (shape_.adds) {
      args.add = device_add_.data() + begin;
      args.sum = x.data();
      args.add_stride = args.sum_stride = shape_.stride;
    }
    if (shape_.to_bf16) args.out_bf16 = rounded.data();
    if (const GpuStatus status = RmsNormCuda(args, nullptr); !status.ok()) return status;
    const GpuStatus ended = simt::SynchronizeDevice();
    *sum = x.Download();
    *out = result.Download();
    if (shape_.to_bf16) {
      const std::vector<Bf16> values = rounded.Download();
      std::transform(values.begin(), values.end(), out->begin(), ToF32);
    }
    return ended;
  }

  std::vector<float> ExpectedSum() const {
    std::vector<float> sum = x_;
    for (size_t i = 0; i < sum.size(); ++i) {
      if (shape_.adds && i % shape_.stride < shape_.groups * shape_.dim) sum[i] += add_[i];
    }
    return sum;
  }
  std::vector<float> Expected() const {
    const std::vector<float> sum = ExpectedSum();
    std::vector<float> out(sum.size(), 3.0f);
    const RmsNormArgs args = {.x = sum.data(),
                              .x_stride = shape_.stride,
                              .rows = shape_.rows,
                              .groups = shape_.groups,
                              .dim = shape_.dim,
                              .weight = weight_.data(),
                              .epsilon = kEpsilon,
                              .out = out.data(),
                              .out_stride = shape_.stride};
    internal::RmsNormReference(args, 0, shape_.rows);
    return out;
  }

 private:
  const Shape shape_;
  std::vector<float> x_, add_, weight_;
  const simt::DeviceArray<float> device_add_, device_weight_;
};

void SweepShape(const Shape& shape, Rng* rng, simt::SweepReport* report) {
  const std::string what = "dim " + std::to_string(shape.dim) + " groups " + std::to_string(shape.groups) +
                           " rows " + std::to_string(shape.rows);
  Case norm(shape, rng);
  std::vector<float> out, sum;
  if (!report->ExpectOk(norm.Run(0, shape.rows, &out, &sum), what)) return;
  const std::vector<float> expected = norm.Expected();
  report->ExpectSameBytes<float>(sum, norm.ExpectedSum(), what + ": the sum");
  // A sum of positive terms: dim/2 u relative at most after the root, and five more roundings; bf16 has 8
  // bits.
  const double relative =
      (static_cast<double>(shape.dim) / 2 + 6) * 0x1.0p-24 + (shape.to_bf16 ? 0x1.0p-8 : 0.0);
  report->ExpectNear(
      out, expected, [&](size_t i) { return relative * std::abs(double{expected[i]}); }, what);
}

void SweepBytes(size_t dim, simt::SweepReport* report) {
  Rng rng(52);
  const Shape shape = {dim, 1, 30, dim, true, false};
  Case norm(shape, &rng);
  norm.x()[5 * dim + 3] = std::nanf("");
  std::vector<float> all, alone, sum;
  if (!report->ExpectOk(norm.Run(0, shape.rows, &all, &sum), "rows together")) return;
  for (size_t row = 0; row < shape.rows; ++row) {
    if (!report->ExpectOk(norm.Run(row, 1, &alone, &sum), "a row alone")) return;
    const std::span<const float> same(all.data() + row * dim, dim);
    const bool all_nan =
        std::all_of(alone.begin(), alone.end(), [](float value) { return std::isnan(value); });
    report->Expect(all_nan == (row == 5), "a NaN leaves its row, or does not fill it");
    if (row != 5) report->ExpectSameBytes<float>(alone, same, "row " + std::to_string(row) + " alone");
  }
}

}  // namespace

void SweepRmsNorm(simt::SweepReport* report) {
  Rng rng(51);
  for (const size_t dim : {1u, 31u, 32u, 33u, 64u, 127u, 128u, 511u, 512u, 513u, 576u, 1024u}) {
    for (const size_t groups : {1u, 3u}) {
      for (const size_t rows : {0u, 1u, 4u, 5u, 33u}) {
        if (!report->thorough() && dim > 128 && rows > 5) continue;
        SweepShape({dim, groups, rows, groups * dim + rng.Below(3), rng.Below(2) == 0, rng.Below(2) == 0},
                   &rng, report);
      }
    }
  }
  SweepBytes(70, report);
  SweepBytes(600, report);
  report->Expect(RmsNormCuda({.norm = {.x_stride = 1, .dim = 2}}, nullptr).code == GpuCode::kInvalid,
                 "a stride below a row is not refused");
}

}  // namespace epic
