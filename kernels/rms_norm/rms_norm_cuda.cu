#include "kernels/rms_norm/rms_norm_cuda.h"

#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / simt::kWarp;
// Vectors up to this length are normed by a warp, longer ones by a block.
constexpr size_t kWarpDim = 512;

// The sum of all lanes' values, in a fixed order, in every lane.
EPIC_DEVICE float SumOfWarp(float value) {
  EPIC_UNROLL
  for (uint32_t mask = simt::kWarp / 2; mask > 0; mask /= 2) {
    value = simt::Add(value, simt::ShuffleXor(value, mask));
  }
  return value;
}

// kTeam threads norm a vector: 32 or 128.
template <uint32_t kTeam>
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) NormRows(const EPIC_GRID_CONSTANT RmsNormCudaArgs args) {
  EPIC_SHARED(float, warp_sums, kWarps);
  const RmsNormArgs& norm = args.norm;
  const size_t vector = size_t{simt::BlockIndex().x} * (kThreads / kTeam) + simt::ThreadIndex() / kTeam;
  const bool present = vector < norm.rows * norm.groups;
  const size_t row = vector / norm.groups, at = (vector - row * norm.groups) * norm.dim;
  const float* x = norm.x + row * norm.x_stride + at;
  float sum = 0;
  if (present) {
    for (size_t i = simt::ThreadIndex() % kTeam; i < norm.dim; i += kTeam) {
      float value = x[i];
      if (args.add != nullptr) {
        value = simt::Add(value, args.add[row * args.add_stride + at + i]);
        args.sum[row * args.sum_stride + at + i] = value;
      }
      sum = simt::Fma(value, value, sum);
    }
  }
  sum = SumOfWarp(sum);
  if (kTeam > simt::kWarp) {
    if (simt::Lane() == 0) warp_sums[simt::WarpIndex()] = sum;
    simt::SyncBlock();
    sum = 0;
    EPIC_UNROLL
    for (uint32_t w = 0; w < kWarps; ++w) sum = simt::Add(sum, warp_sums[w]);
  }
  if (!present) return;
  const float factor = 1.0f / sqrtf(simt::Add(sum / static_cast<float>(norm.dim), norm.epsilon));
  // Each thread reads again what it wrote or read itself.
  const float* from = args.add != nullptr ? args.sum + row * args.sum_stride + at : x;
  for (size_t i = simt::ThreadIndex() % kTeam; i < norm.dim; i += kTeam) {
    const float value = simt::Mul(simt::Mul(from[i], factor), norm.weight[i]);
    if (args.out_bf16 != nullptr) {
      args.out_bf16[row * norm.out_stride + at + i] = static_cast<Bf16>(simt::PackBf16(value, 0));
    } else {
      norm.out[row * norm.out_stride + at + i] = value;
    }
  }
}

}  // namespace

GpuStatus RmsNormCuda(const RmsNormCudaArgs& args, GpuStream stream) {
  const RmsNormArgs& norm = args.norm;
  const size_t width = norm.groups * norm.dim;
  if (width == 0 || norm.x_stride < width || norm.out_stride < width) {
    return {GpuCode::kInvalid, "a stride is less than groups * dim, or that is 0"};
  }
  if (args.add != nullptr && (args.sum == nullptr || args.add_stride < width || args.sum_stride < width)) {
    return {GpuCode::kInvalid, "the sum has no place, or a stride of it is less than groups * dim"};
  }
  if (norm.rows == 0) return {};
  const bool by_warp = norm.dim <= kWarpDim;
  const size_t vectors = norm.rows * norm.groups;
  const size_t blocks = by_warp ? (vectors + kWarps - 1) / kWarps : vectors;
  if (blocks > 0x7fffffffu) return {GpuCode::kInvalid, "too many rows for one launch"};
  const simt::Dim3 grid = {static_cast<uint32_t>(blocks)};
  if (by_warp) return simt::Launch(NormRows<simt::kWarp>, grid, kThreads, 0, stream, args);
  return simt::Launch(NormRows<kThreads>, grid, kThreads, 0, stream, args);
}

}  // namespace epic
