// The implementations behind swiglu.h: each works on rows [begin, end), on the calling thread. Only swiglu.cc
// looks here; it has checked the arguments.
#ifndef EPIC_KERNELS_SWIGLU_SWIGLU_INTERNAL_H_
#define EPIC_KERNELS_SWIGLU_SWIGLU_INTERNAL_H_

#include "kernels/swiglu/swiglu.h"

namespace epic::internal {

void SwiGluReference(const SwiGluArgs& args, size_t begin, size_t end);
void SwiGluCpu(const SwiGluArgs& args, size_t begin, size_t end);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_SWIGLU_SWIGLU_INTERNAL_H_
