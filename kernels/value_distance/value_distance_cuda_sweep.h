// Sweep of the GPU's squared distances (kernels/simt/sweep.h) against the reference of this folder: both
// types, one side or two, every row alone. The same under the emulator and on a device, where the device
// check carries it. One thread; for tests and the device check only.
#ifndef EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_CUDA_SWEEP_H_
#define EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepValueDistance(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_VALUE_DISTANCE_VALUE_DISTANCE_CUDA_SWEEP_H_
