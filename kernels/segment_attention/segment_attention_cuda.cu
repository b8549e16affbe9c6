#include "kernels/segment_attention/segment_attention_cuda.h"

#include <algorithm>

#include "kernels/segment_attention/segment_attention_device.h"

namespace epic {
namespace attention {
namespace {

constexpr uint32_t kJoinThreads = 128;

EPIC_DEVICE Work LinkWork(const AttendParams& params, uint32_t tile, uint32_t split_index) {
  const AttentionSplit split = params.splits[split_index];
  Work work;
  work.first_reader = params.first_row + tile * params.readers_a_tile;
  const uint32_t left = params.end_row - work.first_reader;
  work.reader_count = left < params.readers_a_tile ? left : params.readers_a_tile;
  work.segment = split.segment;
  work.first_row = split.first_row;
  work.split_index = split_index;
  return work;
}

EPIC_DEVICE Work DecodeWork(const AttendParams& params, uint32_t index) {
  const AttentionGroup group = params.groups[index];
  Work work;
  work.first_reader = group.first_reader;
  work.reader_count = group.reader_count;
  work.segment = params.readers[group.first_reader].segment;
  work.first_row = group.first_row;
  return work;
}

// One split for each block. Grid: {row tiles or groups, kv heads, splits of a link}.
template <uint32_t kDim>
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) AttendSplits(const EPIC_GRID_CONSTANT AttendParams params) {
  const simt::Dim3 at = simt::BlockIndex();
  const Work work = params.groups != nullptr ? DecodeWork(params, at.x) : LinkWork(params, at.x, at.z);
  Block<kDim> block(params, at.y);
  typename Block<kDim>::Result result;
  block.AttendSplit(work, &result);
  block.Store(work, result);
}

// All splits of a tile of link rows, joined on the way. Grid: {row tiles, kv heads}.
template <uint32_t kDim>
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kThreads) AttendInSequence(const EPIC_GRID_CONSTANT AttendParams params) {
  const simt::Dim3 at = simt::BlockIndex();
  Block<kDim> block(params, at.y);
  typename Block<kDim>::Result all, split;
  all.Clear();
  Work work;
  work.first_reader = params.first_row + at.x * params.readers_a_tile;
  work.reader_count = params.end_row - work.first_reader < params.readers_a_tile
                          ? params.end_row - work.first_reader
                          : params.readers_a_tile;
  for (uint32_t s = 0; s < params.split_count; ++s) {
    block.AttendSplit(LinkWork(params, at.x, s), &split);
    all.Join(split);
  }
  block.WriteOutput(work, all);
}

// Joins the splits of a row and head, a warp each, in order.
template <uint32_t kDim>
EPIC_KERNEL void EPIC_LAUNCH_BOUNDS(kJoinThreads) JoinSplits(const EPIC_GRID_CONSTANT AttendParams params) {
  const uint32_t index = simt::BlockIndex().x * (kJoinThreads / simt::kWarp) + simt::WarpIndex();
  const uint32_t row = params.first_row + index / params.common.heads, head = index % params.common.heads;
  if (row >= params.end_row) return;
  uint32_t slot = (row - params.first_row) * params.split_count, end = slot + params.split_count;
  if (params.row_slots != nullptr) {
    slot = params.row_slots[row];
    end = params.row_slots[row + 1];
  }
  float highest = simt::BitsToFloat(kMinusInfinityBits), total = 0;
  float sums[kDim / simt::kWarp] = {};
  for (; slot < end; ++slot) {
    const size_t at = size_t{slot} * params.common.heads + head;
    const float split_highest = params.stats[2 * at], split_total = params.stats[2 * at + 1];
    if (IsEmpty(split_highest, split_total)) continue;
    const JoinFactors factors = JoinStats(split_highest, split_total, &highest, &total);
    EPIC_UNROLL
    for (uint32_t i = 0; i < kDim / simt::kWarp; ++i) {
      sums[i] = JoinSum(sums[i], params.sums[at * kDim + i * simt::kWarp + simt::Lane()], factors);
    }
  }
  const bool empty = IsEmpty(highest, total);
  float* out =
      params.common.out + size_t{row} * params.common.out_stride + size_t{head} * params.common.head_dim;
  EPIC_UNROLL
  for (uint32_t i = 0; i < kDim / simt::kWarp; ++i) {
    const uint32_t d = i * simt::kWarp + simt::Lane();
    if (d < params.common.head_dim) out[d] = Divided(sums[i], total, empty);
  }
}

constexpr size_t kComfortableWorkspace = size_t{32} << 20;
// Tiles and kv heads that keep every multiprocessor of today's devices busy.
constexpr uint32_t kEnoughBlocks = 256;

uint32_t DimOf(const GpuAttentionArgs& args) { return args.head_dim <= 64 ? 64 : 128; }

size_t SlotBytes(const GpuAttentionArgs& args) {
  return size_t{args.heads} * (DimOf(args) + 2) * sizeof(float);
}

uint32_t ReadersATile(const GpuAttentionArgs& args) { return kRows / (args.heads / args.kv_heads); }

uint32_t TilesOf(const GpuAttentionArgs& args) {
  const uint32_t readers = ReadersATile(args);
  return static_cast<uint32_t>((args.rows + readers - 1) / readers);
}

GpuStatus Check(const GpuAttentionArgs& args) {
  if (args.kv_heads == 0 || args.heads == 0 || args.heads % args.kv_heads != 0) {
    return {GpuCode::kInvalid, "heads must be a multiple of kv_heads"};
  }
  if (args.heads / args.kv_heads > kRows) {
    return {GpuCode::kUnsupported, "more than 64 heads share a kv head: attend on the CPU"};
  }
  if (args.head_dim == 0 || args.head_dim % 2 != 0 || args.head_dim > 128) {
    return {GpuCode::kUnsupported, "head_dim must be even and at most 128: attend on the CPU"};
  }
  if (args.rope.half_dim * 2 != args.head_dim || args.rope.cos == nullptr || args.rope.sin == nullptr) {
    return {GpuCode::kInvalid, "the cos/sin table does not fit head_dim"};
  }
  if (args.rows > 0 && (args.q == nullptr || args.q_positions == nullptr || args.out == nullptr ||
                        args.rows > 0x7fffffffu / args.heads)) {
    return {GpuCode::kInvalid, "q, q_positions or out is missing, or there are too many rows"};
  }
  return {};
}

AttendParams ParamsOf(const GpuAttentionArgs& args, uint32_t first_row, uint32_t end_row, size_t slots) {
  AttendParams params;
  params.common = args;
  params.group = args.heads / args.kv_heads;
  params.readers_a_tile = ReadersATile(args);
  params.first_row = first_row;
  params.end_row = end_row;
  params.sums = static_cast<float*>(args.workspace);
  params.stats = params.sums + slots * args.heads * DimOf(args);
  return params;
}

// The kernels of one head size.
template <uint32_t kDim>
struct Kernels {
  static GpuStatus Splits(const AttendParams& params, simt::Dim3 grid, GpuStream stream) {
    return simt::Launch(AttendSplits<kDim>, grid, kThreads, SharedBytes<kDim>(), stream, params);
  }
  static GpuStatus InSequence(const AttendParams& params, simt::Dim3 grid, GpuStream stream) {
    return simt::Launch(AttendInSequence<kDim>, grid, kThreads, SharedBytes<kDim>(), stream, params);
  }
  static GpuStatus Join(const AttendParams& params, GpuStream stream) {
    constexpr uint32_t kWarps = kJoinThreads / simt::kWarp;
    const uint32_t heads = (params.end_row - params.first_row) * params.common.heads;
    return simt::Launch(JoinSplits<kDim>, {(heads + kWarps - 1) / kWarps}, kJoinThreads, 0, stream, params);
  }
};

bool RunsInSequence(const LinkAttentionArgs& args) {
  if (args.mode != LinkAttentionMode::kAuto) return args.mode == LinkAttentionMode::kSequential;
  return args.split_count <= 1 || TilesOf(args.common) * args.common.kv_heads >= kEnoughBlocks;
}

template <uint32_t kDim>
GpuStatus RunLink(const LinkAttentionArgs& args, GpuStream stream) {
  const uint32_t rows = static_cast<uint32_t>(args.common.rows);
  if (RunsInSequence(args)) {
    AttendParams params = ParamsOf(args.common, 0, rows, 0);
    params.splits = args.splits;
    params.split_count = args.split_count;
    return Kernels<kDim>::InSequence(params, {TilesOf(args.common), args.common.kv_heads}, stream);
  }
  const uint32_t tile = ReadersATile(args.common);
  const size_t row_bytes = SlotBytes(args.common) * args.split_count;
  const size_t fit = row_bytes == 0 ? rows : args.common.workspace_bytes / row_bytes;
  if (fit < std::min(tile, rows) || (row_bytes > 0 && args.common.workspace == nullptr)) {
    return {GpuCode::kWorkspace, "the workspace is smaller than one tile of rows needs"};
  }
  const uint32_t step = fit >= rows ? rows : static_cast<uint32_t>(fit / tile * tile);
  for (uint32_t first = 0; first < rows; first += step) {
    const uint32_t end = std::min(rows, first + step);
    AttendParams params = ParamsOf(args.common, first, end, size_t{end - first} * args.split_count);
    params.splits = args.splits;
    params.split_count = args.split_count;
    if (args.split_count > 0) {
      const simt::Dim3 grid = {(end - first + tile - 1) / tile, args.common.kv_heads, args.split_count};
      if (const GpuStatus status = Kernels<kDim>::Splits(params, grid, stream); !status.ok()) return status;
    }
    if (const GpuStatus status = Kernels<kDim>::Join(params, stream); !status.ok()) return status;
  }
  return {};
}

template <uint32_t kDim>
GpuStatus RunDecode(const DecodeAttentionArgs& args, GpuStream stream) {
  AttendParams params = ParamsOf(args.common, 0, static_cast<uint32_t>(args.common.rows), args.slot_count);
  params.readers = args.readers;
  params.groups = args.groups;
  params.row_slots = args.row_slots;
  if (args.group_count > 0) {
    const simt::Dim3 grid = {args.group_count, args.common.kv_heads};
    if (const GpuStatus status = Kernels<kDim>::Splits(params, grid, stream); !status.ok()) return status;
  }
  return Kernels<kDim>::Join(params, stream);
}

}  // namespace
}  // namespace attention

size_t LinkAttentionWorkspaceBytes(const LinkAttentionArgs& args) {
  if (!attention::Check(args.common).ok() || attention::RunsInSequence(args)) return 0;
  const size_t row_bytes = attention::SlotBytes(args.common) * args.split_count;
  const size_t tile = std::min<size_t>(args.common.rows, attention::ReadersATile(args.common));
  return std::min(args.common.rows * row_bytes, std::max(attention::kComfortableWorkspace, tile * row_bytes));
}

GpuStatus LinkAttentionCuda(const LinkAttentionArgs& args, GpuStream stream) {
  if (const GpuStatus status = attention::Check(args.common); !status.ok()) return status;
  if (args.split_count > 0 && (args.splits == nullptr || args.common.segments == nullptr)) {
    return {GpuCode::kInvalid, "splits or segments are missing"};
  }
  if (args.split_count > 65535) return {GpuCode::kUnsupported, "more than 65535 splits"};
  if (args.common.rows == 0) return {};
  return attention::DimOf(args.common) == 64 ? attention::RunLink<64>(args, stream)
                                             : attention::RunLink<128>(args, stream);
}

size_t DecodeAttentionWorkspaceBytes(const DecodeAttentionArgs& args) {
  return attention::SlotBytes(args.common) * args.slot_count;
}

GpuStatus DecodeAttentionCuda(const DecodeAttentionArgs& args, GpuStream stream) {
  if (const GpuStatus status = attention::Check(args.common); !status.ok()) return status;
  if (args.common.rows == 0) return {};
  if (args.row_slots == nullptr ||
      (args.group_count > 0 &&
       (args.readers == nullptr || args.groups == nullptr || args.common.segments == nullptr))) {
    return {GpuCode::kInvalid, "readers, groups, row_slots or segments are missing"};
  }
  if (args.common.workspace_bytes < DecodeAttentionWorkspaceBytes(args) ||
      (args.slot_count > 0 && args.common.workspace == nullptr)) {
    return {GpuCode::kWorkspace, "the workspace is smaller than DecodeAttentionWorkspaceBytes"};
  }
  return attention::DimOf(args.common) == 64 ? attention::RunDecode<64>(args, stream)
                                             : attention::RunDecode<128>(args, stream);
}

}  // namespace epic
