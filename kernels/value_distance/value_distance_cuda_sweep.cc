#include "kernels/value_distance/value_distance_cuda_sweep.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/simt/device_memory.h"
#include "kernels/value_distance/value_distance_cuda.h"
#include "kernels/value_distance/value_distance_internal.h"

namespace epic {
namespace {

constexpr uint32_t kHeads = 3;
constexpr float kUntouched = -1.0f;

std::vector<Bf16> RandomBf16(size_t count, Rng* rng) {
  std::vector<Bf16> values;
  for (const float value : simt::RandomFloats(count, rng)) values.push_back(ToBf16(value));
  return values;
}

std::vector<float> Widened(const std::vector<Bf16>& values) {
  std::vector<float> wide;
  for (const Bf16 value : values) wide.push_back(ToF32(value));
  return wide;
}

// Values of both types in host and device memory, equal as numbers.
struct Values {
  Values(size_t count, Rng* rng) : bf16(RandomBf16(count, rng)), f32(Widened(bf16)) {}
  const std::vector<Bf16> bf16;
  const std::vector<float> f32;
  const simt::DeviceArray<Bf16> device_bf16{bf16};
  const simt::DeviceArray<float> device_f32{f32};

  const void* Host(DType dtype) const {
    return dtype == DType::kF32 ? static_cast<const void*>(f32.data()) : bf16.data();
  }
  const void* Device(DType dtype) const {
    return dtype == DType::kF32 ? static_cast<const void*>(device_f32.data()) : device_bf16.data();
  }
};

// `from_zero`: the squared length of one side, without another.
void SweepDistance(size_t rows, uint32_t head_dim, DType dtype, bool from_zero, Rng* rng,
                   simt::SweepReport* report) {
  const std::string what = std::to_string(rows) + " rows of heads of " + std::to_string(head_dim) +
                           (dtype == DType::kF32 ? " f32" : " bf16") + (from_zero ? " from zero" : "");
  const size_t a_stride = (rows + 2) * head_dim, b_stride = rows * head_dim + 3;
  const Values a(kHeads * a_stride + 1, rng), b(kHeads * b_stride + 1, rng);
  std::vector<float> expected(kHeads * (rows + 1), kUntouched);
  SquaredDistanceArgs args = {.a = {a.Host(dtype), a_stride},
                              .dtype = dtype,
                              .rows = rows,
                              .kv_heads = kHeads,
                              .head_dim = head_dim,
                              .out = expected.data(),
                              .out_stride = rows + 1};
  if (!from_zero) args.b = {b.Host(dtype), b_stride};
  internal::SquaredDistanceReference(args);
  const simt::DeviceArray<float> out(expected.size(), kUntouched);
  args.a.data = a.Device(dtype);
  if (!from_zero) args.b.data = b.Device(dtype);
  args.out = out.data();
  const auto run = [&](const SquaredDistanceArgs& call) {
    return report->ExpectOk(SquaredDistanceCuda(call, nullptr), what) &&
           report->ExpectOk(simt::SynchronizeDevice(), what);
  };
  if (!run(args)) return;
  const std::vector<float> all = out.Download();
  // A sum of positive terms of a lane, then five additions: each term has two roundings.
  const double relative = (static_cast<double>(head_dim) / 32 + 8) * 0x1.0p-24;
  report->ExpectNear(
      all, expected, [&](size_t i) { return expected[i] == kUntouched ? 0 : relative * expected[i]; }, what);
  for (size_t row = 0; row < rows; row += 7) {
    SquaredDistanceArgs alone = args;
    const size_t skipped = row * head_dim * SizeOf(dtype);
    alone.a.data = static_cast<const char*>(args.a.data) + skipped;
    if (!from_zero) alone.b.data = static_cast<const char*>(args.b.data) + skipped;
    alone.rows = 1;
    if (!run(alone)) return;
    const std::vector<float> one = out.Download();
    for (uint32_t head = 0; head < kHeads; ++head) {
      const size_t at = head * (rows + 1);
      report->ExpectSameBytes<float>(std::vector<float>{one[at]}, std::vector<float>{all[at + row]},
                                     what + " alone");
    }
  }
}

}  // namespace

void SweepValueDistance(simt::SweepReport* report) {
  Rng rng(82);
  for (const size_t rows : {0u, 1u, 3u, 4u, 5u, 30u}) {
    for (const uint32_t head_dim : {1u, 31u, 32u, 64u, 80u}) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        for (const bool from_zero : {false, true})
          SweepDistance(rows, head_dim, dtype, from_zero, &rng, report);
      }
    }
  }
}

}  // namespace epic
