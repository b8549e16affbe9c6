#include "kernels/device_check/device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "common/base/check.h"
#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr size_t kFlushBytes = size_t{256} << 20;  // more than any device's cache
constexpr int kRoofRounds = 10;
constexpr uint32_t kMmaThreads = 256;
constexpr uint32_t kMmaSteps = 4096;
constexpr uint32_t kMmaChains = 8;
constexpr double kFlopOfMma = 2.0 * 16 * 8 * 16;

void CheckCuda(cudaError_t error) { EPIC_CHECK(error == cudaSuccess); }

// Independent products from registers; the result is written only where it cannot be, so that it is computed.
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kMmaThreads) MultiplyOnly(float* out) {
  float sums[kMmaChains][4] = {};
  const uint32_t one = simt::PackBf16(1, 1) + simt::Lane() % 2;
  const uint32_t a[4] = {one, one, one, one}, b[2] = {one, one};
  for (uint32_t step = 0; step < kMmaSteps; ++step) {
    EPIC_UNROLL
    for (uint32_t c = 0; c < kMmaChains; ++c) simt::MmaBf16(sums[c], a, b);
  }
  float all = 0;
  for (uint32_t c = 0; c < kMmaChains; ++c) all += sums[c][0] + sums[c][1] + sums[c][2] + sums[c][3];
  if (all < 0) *out = all;
}

}  // namespace

bool FindDevice(DeviceInfo* info, std::string* why) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    *why = error != cudaSuccess ? cudaGetErrorString(error) : "no device is there";
    return false;
  }
  cudaDeviceProp properties;
  CheckCuda(cudaGetDeviceProperties(&properties, 0));
  if (properties.major < 8) {
    *why = std::string(properties.name) + " is older than sm_80";
    return false;
  }
  *info = {properties.name, properties.multiProcessorCount, properties.major, properties.minor,
           properties.totalGlobalMem};
  return true;
}

GpuStatus Measure(const std::function<GpuStatus()>& launch, int rounds, Timing* timing) {
  void* flush = nullptr;
  CheckCuda(cudaMalloc(&flush, kFlushBytes));
  cudaEvent_t begin, end;
  CheckCuda(cudaEventCreate(&begin));
  CheckCuda(cudaEventCreate(&end));
  std::vector<double> seconds;
  GpuStatus status;
  for (int round = 0; round <= rounds && status.ok(); ++round) {
    CheckCuda(cudaMemsetAsync(flush, round, kFlushBytes));
    CheckCuda(cudaEventRecord(begin));
    status = launch();
    CheckCuda(cudaEventRecord(end));
    if (const cudaError_t error = cudaEventSynchronize(end); error != cudaSuccess) {
      status = {GpuCode::kDevice, cudaGetErrorString(error)};
    }
    float milliseconds = 0;
    if (status.ok()) CheckCuda(cudaEventElapsedTime(&milliseconds, begin, end));
    if (round > 0) seconds.push_back(milliseconds * 1e-3);
  }
  if (!status.ok()) return status;
  CheckCuda(cudaEventDestroy(begin));
  CheckCuda(cudaEventDestroy(end));
  CheckCuda(cudaFree(flush));
  std::sort(seconds.begin(), seconds.end());
  *timing = {seconds[seconds.size() / 2], seconds.front(), seconds.back()};
  return {};
}

double MeasureCopyRoof() {
  constexpr size_t kBytes = size_t{1} << 30;
  void *from = nullptr, *to = nullptr;
  CheckCuda(cudaMalloc(&from, kBytes));
  CheckCuda(cudaMalloc(&to, kBytes));
  CheckCuda(cudaMemset(from, 1, kBytes));
  Timing timing;
  const GpuStatus status =
      Measure([&] { return simt::StatusOf(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice)); },
              kRoofRounds, &timing);
  EPIC_CHECK(status.ok());
  CheckCuda(cudaFree(from));
  CheckCuda(cudaFree(to));
  return 2.0 * static_cast<double>(kBytes) / timing.median_seconds;
}

double MeasureMmaRoof() {
  int multiprocessors = 0;
  CheckCuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const uint32_t blocks = static_cast<uint32_t>(multiprocessors) * 4;
  float* out = nullptr;
  CheckCuda(cudaMalloc(&out, sizeof(float)));
  Timing timing;
  const GpuStatus status =
      Measure([&] { return simt::Launch(MultiplyOnly, {blocks}, kMmaThreads, 0, nullptr, out); }, kRoofRounds,
              &timing);
  EPIC_CHECK(status.ok());
  CheckCuda(cudaFree(out));
  const double warps = static_cast<double>(blocks) * (kMmaThreads / simt::kWarp);
  return warps * kMmaSteps * kMmaChains * kFlopOfMma / timing.median_seconds;
}

}  // namespace epic
