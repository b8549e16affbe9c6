// The measured roof of benches: what a loop of independent f32 fused multiply-adds reaches on a pool.
#ifndef EPIC_KERNELS_API_ROOF_H_
#define EPIC_KERNELS_API_ROOF_H_

#include "kernels/api/thread_pool.h"

namespace epic {

// FLOP per second (two per multiply-add), the best of a few short runs; takes about 50 ms.
double MeasureFmaRoof(ThreadPool* pool);

}  // namespace epic

#endif  // EPIC_KERNELS_API_ROOF_H_
