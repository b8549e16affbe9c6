// Sweep of the GPU's sampling (kernels/simt/sweep.h) against this folder's sampling on the host.
#ifndef EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_SWEEP_H_
#define EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepSampling(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_SWEEP_H_
