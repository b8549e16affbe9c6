// The implementations behind swiglu.h: each works on rows [begin, end), on the calling thread. Stateless.
// Only swiglu.cc, which has checked the arguments and shares rows out among threads, and the tests of this
// folder look here.
#ifndef EPIC_KERNELS_SWIGLU_SWIGLU_INTERNAL_H_
#define EPIC_KERNELS_SWIGLU_SWIGLU_INTERNAL_H_

#include "kernels/swiglu/swiglu.h"

namespace epic::internal {

void SwiGluReference(const SwiGluArgs& args, size_t begin, size_t end);
void SwiGluCpu(const SwiGluArgs& args, size_t begin, size_t end);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SWIGLU_SWIGLU_INTERNAL_H_
