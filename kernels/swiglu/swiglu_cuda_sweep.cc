#include "kernels/swiglu/swiglu_cuda_sweep.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/simt/device_memory.h"
#include "kernels/swiglu/swiglu_cuda.h"
#include "kernels/swiglu/swiglu_internal.h"

namespace epic {
namespace {

// `in`: [rows][in_stride], gate and up beside each other. [rows][out_stride] comes back, 3 where nothing was
// written.
GpuStatus Run(const std::vector<float>& in, size_t rows, size_t dim, size_t in_stride, size_t out_stride,
              bool to_bf16, std::vector<float>* out) {
  const simt::DeviceArray<float> device_in(in), result(rows * out_stride, 3.0f);
  const simt::DeviceArray<Bf16> rounded(rows * out_stride, ToBf16(3.0f));
  SwiGluCudaArgs args;
  args.gate = {.gate = device_in.data(),
               .up = device_in.data() + (rows > 0 ? dim : 0),
               .in_stride = in_stride,
               .rows = rows,
               .dim = dim,
               .out = result.data(),
               .out_stride = out_stride};
  if (to_bf16) args.out_bf16 = rounded.data();
  if (const GpuStatus status = SwiGluCuda(args, nullptr); !status.ok()) return status;
  const GpuStatus ended = simt::SynchronizeDevice();
  *out = result.Download();
  if (to_bf16) {
    const std::vector<Bf16> values = rounded.Download();
    std::transform(values.begin(), values.end(), out->begin(), ToF32);
  }
  return ended;
}

std::vector<float> Expected(const std::vector<float>& in, size_t rows, size_t dim, size_t in_stride,
                            size_t out_stride) {
  std::vector<float> out(rows * out_stride, 3.0f);
  const SwiGluArgs args = {.gate = in.data(),
                           .up = in.data() + (rows > 0 ? dim : 0),
                           .in_stride = in_stride,
                           .rows = rows,
                           .dim = dim,
                           .out = out.data(),
                           .out_stride = out_stride};
  internal::SwiGluReference(args, 0, rows);
  return out;
}

void SweepShape(size_t rows, size_t dim, bool to_bf16, Rng* rng, simt::SweepReport* report) {
  const size_t in_stride = 2 * dim + rng->Below(3), out_stride = dim + rng->Below(3);
  const std::string what = std::to_string(rows) + " rows of " + std::to_string(dim);
  const std::vector<float> in = simt::RandomFloats(rows * in_stride, rng, 30);
  std::vector<float> out;
  if (!report->ExpectOk(Run(in, rows, dim, in_stride, out_stride, to_bf16, &out), what)) return;
  const std::vector<float> expected = Expected(in, rows, dim, in_stride, out_stride);
  const auto bound = [&](size_t i) {
    const size_t at = i / out_stride * in_stride + i % out_stride;
    if (i % out_stride >= dim) return 0.0;
    const double gate = in[at], up = in[at + dim];
    // The power's argument is rounded: |gate| log2(e) u relative, beside 2^-22 of the power and three steps.
    const double relative = (std::abs(gate) * 1.5 + 3) * 0x1.0p-24 + 0x1.0p-22 + (to_bf16 ? 0x1.0p-8 : 0.0);
    return std::abs(expected[i]) * relative + 1e-34 * std::abs(gate * up);
  };
  report->ExpectNear(out, expected, bound, what);
}

}  // namespace

void SweepSwiGlu(simt::SweepReport* report) {
  Rng rng(41);
  for (const size_t dim : {1u, 7u, 31u, 32u, 33u, 255u, 256u, 257u}) {
    for (const size_t rows : {0u, 1u, 2u, 15u, 40u}) SweepShape(rows, dim, rng.Below(2) == 0, &rng, report);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> in = {0, 1000, -1000, kInfinity, std::nanf(""), -86, 1, 1, 1, 1, 1, 1};
  std::vector<float> out;
  if (!report->ExpectOk(Run(in, 1, 6, 12, 6, false, &out), "extremes")) return;
  report->ExpectNear(
      out, Expected(in, 1, 6, 12, 6), [](size_t) { return 1e-30; }, "extremes");
  // An element has the same bytes in every row and call.
  const std::vector<float> many = simt::RandomFloats(20 * 90, &rng, 2);
  std::vector<float> all, alone;
  if (!report->ExpectOk(Run(many, 20, 45, 90, 45, false, &all), "rows together")) return;
  for (size_t row = 0; row < 20; ++row) {
    const std::vector<float> one(many.begin() + static_cast<ptrdiff_t>(row * 90),
                                 many.begin() + static_cast<ptrdiff_t>(row * 90 + 90));
    if (!report->ExpectOk(Run(one, 1, 45, 90, 45, false, &alone), "a row alone")) return;
    report->ExpectSameBytes<float>(alone, std::span<const float>(all.data() + row * 45, 45), "a row alone");
  }
  report->Expect(SwiGluCuda({.gate = {.in_stride = 1, .dim = 2}}, nullptr).code == GpuCode::kInvalid,
                 "a stride below a row is not refused");
}

}  // namespace epic
