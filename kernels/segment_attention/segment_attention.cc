#include "kernels/segment_attention/segment_attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/segment_attention/segment_attention_internal.h"

namespace epic {
namespace internal {
namespace {

constexpr size_t kTasksPerThread = 6;  // enough to even out causal tiles and disturbed threads

size_t RowsPerTask(const SegmentAttentionArgs& args, size_t threads, const TaskSize& size) {
  const size_t group = args.heads / args.kv_heads;
  const size_t most = std::max(size.most / group, size_t{1});
  const size_t fewest = std::min(std::max(size.fewest / group, size_t{1}), most);
  if (threads == 1) return most;
  const size_t tiles = std::max(threads * kTasksPerThread / args.kv_heads, size_t{1});
  return std::clamp((args.rows + tiles - 1) / tiles, fewest, most);
}

}  // namespace

void ForAttentionTasks(const SegmentAttentionArgs& args, ThreadPool* pool, const TaskSize& size,
                       const std::function<void(const AttentionTask&)>& run) {
  const size_t rows_per_task = RowsPerTask(args, pool == nullptr ? 1 : pool->threads(), size);
  const size_t row_tiles = (args.rows + rows_per_task - 1) / rows_per_task;
  // The last rows see the most keys, and the pool takes the highest index first.
  ForRowBlocks(pool, row_tiles * args.kv_heads, 1, [&](size_t begin, size_t end) {
    for (size_t index = begin; index < end; ++index) {
      const size_t first = index / args.kv_heads * rows_per_task;
      run({&args, static_cast<uint32_t>(index % args.kv_heads), first,
           std::min(args.rows, first + rows_per_task), args.heads / args.kv_heads});
    }
  });
}

}  // namespace internal

namespace {

// Calls above this part of a thread's share are split up among the threads.
constexpr uint64_t kWholeParts = 4;

// What a call takes, in products of a query with a key.
uint64_t WorkOf(const SegmentAttentionArgs& args) {
  uint64_t keys = 0;
  for (const KvSegment& segment : args.segments)
    keys += segment.rows - std::min(segment.first_row, segment.rows);
  return args.rows * args.heads * keys;
}

// The unit to use, or null. A matter of the engine's settings and of the CPU, never of the rows of a call.
const internal::TileUnit* TilesFor(const SegmentAttentionArgs& args) {
  if (args.arithmetic != DType::kBf16) return nullptr;
  for (const KvSegment& segment : args.segments) {
    if (segment.dtype != DType::kBf16) return nullptr;
  }
  return internal::AmxTileUnit();
}

}  // namespace

void SegmentAttention(const SegmentAttentionArgs& args, ThreadPool* pool, KernelPath path) {
  if (args.rows == 0) return;
  EPIC_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  EPIC_CHECK(args.rope != nullptr && args.rope->half_dim() * 2 == args.head_dim);
  if (path == KernelPath::kReference) return internal::SegmentAttentionReference(args, pool);
  const internal::TileUnit* unit = TilesFor(args);
  if (unit != nullptr) return internal::SegmentAttentionTiles(args, pool, *unit);
  internal::SegmentAttentionCpu(args, pool);
}

void SegmentAttentionOfEach(std::span<const SegmentAttentionArgs> calls, ThreadPool* pool, KernelPath path) {
  std::vector<std::pair<uint64_t, const SegmentAttentionArgs*>> whole;
  uint64_t all = 0;
  for (const SegmentAttentionArgs& args : calls) all += WorkOf(args);
  const uint64_t most = pool == nullptr ? all : all / (kWholeParts * pool->threads());
  for (const SegmentAttentionArgs& args : calls) {
    const uint64_t work = WorkOf(args);
    if (work > most) {
      SegmentAttention(args, pool, path);
    } else {
      whole.emplace_back(work, &args);
    }
  }
  // The pool takes the last, largest ones first.
  std::sort(whole.begin(), whole.end());
  ForRowBlocks(pool, whole.size(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) SegmentAttention(*whole[i].second, nullptr, path);
  });
}

}  // namespace epic
