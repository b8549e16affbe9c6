#include "kernels/row_copy/row_copy_cuda.h"

#include "kernels/simt/simt.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 128;

// A thread copies Word of a row: 4 or 16 bytes.
template <typename Word, bool kScatters>
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) CopyRows(const EPIC_GRID_CONSTANT RowCopyArgs args) {
  constexpr size_t kWords = sizeof(Word) / sizeof(uint32_t);
  const size_t pieces = args.words / kWords;
  const size_t index = size_t{simt::BlockIndex().x} * kThreads + simt::ThreadIndex();
  const size_t i = index / pieces, at = (index - i * pieces) * kWords;
  if (i >= args.count) return;
  const size_t from = kScatters ? i : args.rows[i], to = kScatters ? args.rows[i] : i;
  *reinterpret_cast<Word*>(args.out + to * args.out_stride + at) =
      *reinterpret_cast<const Word*>(args.in + from * args.in_stride + at);
}

template <bool kScatters>
GpuStatus Copy(const RowCopyArgs& args, GpuStream stream) {
  if (args.in_stride < args.words || args.out_stride < args.words) {
    return {GpuCode::kInvalid, "a stride is less than the words of a row"};
  }
  if (args.count == 0 || args.words == 0) return {};
  const auto is_aligned = [](const void* at, size_t stride) {
    return reinterpret_cast<uintptr_t>(at) % 16 == 0 && stride % 4 == 0;
  };
  const bool wide =
      args.words % 4 == 0 && is_aligned(args.in, args.in_stride) && is_aligned(args.out, args.out_stride);
  const size_t blocks = (args.count * (args.words / (wide ? 4 : 1)) + kThreads - 1) / kThreads;
  if (blocks > 0x7fffffffu) return {GpuCode::kInvalid, "too many rows for one launch"};
  const simt::Dim3 grid = {static_cast<uint32_t>(blocks)};
  if (wide) return simt::Launch(CopyRows<simt::Bits128, kScatters>, grid, kThreads, 0, stream, args);
  return simt::Launch(CopyRows<uint32_t, kScatters>, grid, kThreads, 0, stream, args);
}

}  // namespace

GpuStatus GatherRowsCuda(const RowCopyArgs& args, GpuStream stream) { return Copy<false>(args, stream); }

GpuStatus ScatterRowsCuda(const RowCopyArgs& args, GpuStream stream) { return Copy<true>(args, stream); }

}  // namespace epic
