#include "kernels/swiglu/swiglu_cuda.h"

#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 256;

EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) Gate(const EPIC_GRID_CONSTANT SwiGluCudaArgs args) {
  const SwiGluArgs& in = args.gate;
  const size_t index = size_t{simt::BlockIndex().x} * kThreads + simt::ThreadIndex();
  const size_t row = index / in.dim, i = index - row * in.dim;
  if (row >= in.rows) return;
  const float gate = in.gate[row * in.in_stride + i], up = in.up[row * in.in_stride + i];
  const float power = simt::Exp2(simt::Mul(gate, -1.44269504088896340736f));
  const float value = simt::Mul(gate / simt::Add(1.0f, power), up);
  if (args.out_bf16 != nullptr) {
    args.out_bf16[row * in.out_stride + i] = static_cast<Bf16>(simt::PackBf16(value, 0));
  } else {
    in.out[row * in.out_stride + i] = value;
  }
}

}  // namespace

GpuStatus SwiGluCuda(const SwiGluCudaArgs& args, GpuStream stream) {
  const SwiGluArgs& in = args.gate;
  if (in.in_stride < in.dim || in.out_stride < in.dim)
    return {GpuCode::kInvalid, "a stride is less than dim"};
  if (in.rows == 0 || in.dim == 0) return {};
  const size_t blocks = (in.rows * in.dim + kThreads - 1) / kThreads;
  if (blocks > 0x7fffffffu) return {GpuCode::kInvalid, "too many rows for one launch"};
  return simt::Launch(Gate, {static_cast<uint32_t>(blocks)}, kThreads, 0, stream, args);
}

}  // namespace epic
