// Sweep of the GPU's gate (kernels/simt/sweep.h) against the reference of this folder.
#ifndef EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_SWEEP_H_
#define EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepSwiGlu(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_SWEEP_H_
