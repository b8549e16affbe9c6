#include "kernels/value_distance/value_distance_cuda.h"

#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / simt::kWarp;

EPIC_DEVICE float Value(const ValueRows& rows, DType dtype, size_t at) {
  if (rows.data == nullptr) return 0;
  if (dtype == DType::kF32) return static_cast<const float*>(rows.data)[at];
  return simt::BitsToFloat(uint32_t{static_cast<const Bf16*>(rows.data)[at]} << 16);
}

// A warp for each head of each row; heads one after another, so that results of neighbours stand together.
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) Distance(const EPIC_GRID_CONSTANT SquaredDistanceArgs args) {
  const size_t index = size_t{simt::BlockIndex().x} * kWarps + simt::WarpIndex();
  const size_t head = index / args.rows, row = index % args.rows;
  if (head >= args.kv_heads) return;  // the whole warp
  const size_t a = head * args.a.head_stride + row * args.head_dim;
  const size_t b = head * args.b.head_stride + row * args.head_dim;
  float sum = 0;
  for (uint32_t d = simt::Lane(); d < args.head_dim; d += simt::kWarp) {
    const float difference = simt::Add(Value(args.a, args.dtype, a + d), -Value(args.b, args.dtype, b + d));
    sum = simt::Fma(difference, difference, sum);
  }
  EPIC_UNROLL
  for (uint32_t mask = simt::kWarp / 2; mask > 0; mask /= 2)
    sum = simt::Add(sum, simt::ShuffleXor(sum, mask));
  if (simt::Lane() == 0) args.out[head * args.out_stride + row] = sum;
}

}  // namespace

GpuStatus SquaredDistanceCuda(const SquaredDistanceArgs& args, GpuStream stream) {
  if (args.rows == 0) return {};
  if (args.a.data == nullptr || args.out == nullptr) return {GpuCode::kInvalid, "a or out is missing"};
  if (args.out_stride < args.rows) return {GpuCode::kInvalid, "out_stride is less than rows"};
  const size_t blocks = (args.rows * args.kv_heads + kWarps - 1) / kWarps;
  if (blocks > 0x7fffffffu) return {GpuCode::kInvalid, "too many rows for one launch"};
  return simt::Launch(Distance, {static_cast<uint32_t>(blocks)}, kThreads, 0, stream, args);
}

}  // namespace epic
