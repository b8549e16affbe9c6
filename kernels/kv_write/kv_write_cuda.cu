#include "kernels/kv_write/kv_write_cuda.h"

#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 128;

// A thread for each pair of a row's elements that turn together.
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) WriteRows(const EPIC_GRID_CONSTANT KvWriteCudaArgs args) {
  const uint32_t half = args.head_dim / 2, pairs = args.kv_heads * half;
  const size_t index = size_t{simt::BlockIndex().x} * kThreads + simt::ThreadIndex();
  const size_t row = index / pairs;
  if (row >= args.rows) return;
  const auto pair = static_cast<uint32_t>(index - row * pairs);
  const uint32_t head = pair / half, j = pair - head * half;
  const bool norm = args.rope.pairs == RopePairs::kNorm;
  const uint32_t first = norm ? 2 * j : j, second = norm ? 2 * j + 1 : j + half;
  const size_t from = row * args.in_stride + size_t{head} * args.head_dim;
  KvRowTarget to = args.target;
  if (args.row_targets != nullptr) {
    to = args.row_targets[row];
  } else {
    to.k += row * args.head_dim;
    to.v += row * args.head_dim;
  }
  const size_t at = head * to.head_stride;
  const size_t turn = size_t{args.positions[row]} * half + j;
  const float cosine = args.rope.cos[turn], sine = args.rope.sin[turn];
  const float a = args.k[from + first], b = args.k[from + second];
  const uint32_t keys =
      simt::PackBf16(simt::Fma(-b, sine, simt::Mul(a, cosine)), simt::Fma(b, cosine, simt::Mul(a, sine)));
  to.k[at + first] = static_cast<Bf16>(keys);
  to.k[at + second] = static_cast<Bf16>(keys >> 16);
  const uint32_t values = simt::PackBf16(args.v[from + first], args.v[from + second]);
  to.v[at + first] = static_cast<Bf16>(values);
  to.v[at + second] = static_cast<Bf16>(values >> 16);
}

}  // namespace

GpuStatus KvWriteCuda(const KvWriteCudaArgs& args, GpuStream stream) {
  if (args.head_dim == 0 || args.head_dim % 2 != 0 || args.rope.half_dim * 2 != args.head_dim) {
    return {GpuCode::kInvalid, "head_dim must be even and fit the cos/sin table"};
  }
  if (args.kv_heads == 0 || args.in_stride < size_t{args.kv_heads} * args.head_dim) {
    return {GpuCode::kInvalid, "in_stride is less than kv_heads * head_dim"};
  }
  if (args.rows == 0) return {};
  const size_t blocks = (args.rows * args.kv_heads * (args.head_dim / 2) + kThreads - 1) / kThreads;
  if (blocks > 0x7fffffffu) return {GpuCode::kInvalid, "too many rows for one launch"};
  return simt::Launch(WriteRows, {static_cast<uint32_t>(blocks)}, kThreads, 0, stream, args);
}

}  // namespace epic
