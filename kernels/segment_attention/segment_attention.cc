#include "kernels/segment_attention/segment_attention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kernels/api/parallel.h"
#include "kernels/segment_attention/segment_attention_internal.h"

namespace epic {
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

}  // namespace

void SegmentAttention(const SegmentAttentionArgs& args, ThreadPool* pool, KernelPath path) {
  if (args.rows == 0) return;
  EPIC_CHECK(args.kv_heads > 0 && args.heads % args.kv_heads == 0);
  EPIC_CHECK(args.rope != nullptr && args.rope->half_dim() * 2 == args.head_dim);
  if (path == KernelPath::kReference) return internal::SegmentAttentionReference(args, pool);
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
