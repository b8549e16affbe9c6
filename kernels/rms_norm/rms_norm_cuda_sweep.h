// Sweep of the GPU's norms (kernels/simt/sweep.h) against the reference of this folder, over sizes around
// each boundary, with and without the addition. The same under the emulator and on a device, where the device
// check carries it. One thread; for tests and the device check only.
#ifndef EPIC_KERNELS_RMS_NORM_RMS_NORM_CUDA_SWEEP_H_
#define EPIC_KERNELS_RMS_NORM_RMS_NORM_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepRmsNorm(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_RMS_NORM_RMS_NORM_CUDA_SWEEP_H_
