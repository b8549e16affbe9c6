// Splits `rows` into blocks and runs them on a pool, or here when the pool is null or the work is small.
//
// No state of its own; called by the one thread that lends the pool. How work is split never changes a
// result: callers give rows, never parts of a sum.
#ifndef EPIC_KERNELS_API_PARALLEL_H_
#define EPIC_KERNELS_API_PARALLEL_H_

#include <algorithm>
#include <cstddef>

#include "kernels/api/thread_pool.h"

namespace epic {

// Calls fn(begin, end) for disjoint ranges that cover [0, rows). REQUIRES: block_rows >= 1.
template <typename Fn>
void ForRowBlocks(ThreadPool* pool, size_t rows, size_t block_rows, const Fn& fn) {
  const size_t blocks = (rows + block_rows - 1) / block_rows;
  if (pool == nullptr || blocks <= 1) {
    if (rows > 0) fn(size_t{0}, rows);
    return;
  }
  pool->ParallelFor(blocks, [&](size_t block, uint32_t /*worker*/) {
    fn(block * block_rows, std::min(rows, (block + 1) * block_rows));
  });
}

}  // namespace epic

#endif  // EPIC_KERNELS_API_PARALLEL_H_
