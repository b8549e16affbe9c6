// The measured roofs that benches compare with: arithmetic and memory of the pool that an op runs on.
//
// A measurement takes the pool for itself; called from a bench's one thread. Nothing is kept between calls.
#ifndef EPIC_KERNELS_API_ROOF_H_
#define EPIC_KERNELS_API_ROOF_H_

#include <cstddef>

#include "kernels/api/thread_pool.h"

namespace epic {

// FLOP per second (two per multiply-add), the best of a few short runs; takes about 50 ms.
double MeasureFmaRoof(ThreadPool* pool);

// Seconds of that many multiply-adds, respectively of that many vector exponentials (Exp2 over an array in
// the first-level cache), shared out evenly: one short run scaled to the count, for benches that time a
// kernel and its roof by turns.
double TimeFma(ThreadPool* pool, double multiply_adds);
double TimeExp(ThreadPool* pool, double exponentials);

// Bytes per second, read and written together, of copying `bytes` from one array to another, again and again:
// what memory, or the cache that such an array fits into, gives. Small ones on this thread alone. Takes about
// 50 ms.
double MeasureCopyRoof(ThreadPool* pool, size_t bytes);

// Bytes per second read from `bytes` of memory, the best of a few rounds over all of it.
// REQUIRES: bytes is more than the caches hold if memory is meant.
double MeasureReadRoof(ThreadPool* pool, size_t bytes);

}  // namespace epic

#endif  // EPIC_KERNELS_API_ROOF_H_
