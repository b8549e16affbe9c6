// The implementations behind rms_norm.h: each norms rows [begin, end), on the calling thread. Stateless. Only
// rms_norm.cc, which has checked the arguments and shares rows out among threads, and the tests of this
// folder look here.
#ifndef EPIC_KERNELS_RMS_NORM_RMS_NORM_INTERNAL_H_
#define EPIC_KERNELS_RMS_NORM_RMS_NORM_INTERNAL_H_

#include "kernels/rms_norm/rms_norm.h"

namespace epic::internal {

void RmsNormReference(const RmsNormArgs& args, size_t begin, size_t end);
void RmsNormCpu(const RmsNormArgs& args, size_t begin, size_t end);

}  // namespace epic::internal

#endif  // EPIC_KERNELS_RMS_NORM_RMS_NORM_INTERNAL_H_
