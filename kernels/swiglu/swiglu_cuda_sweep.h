// Sweep of the GPU's gate (kernels/simt/sweep.h) against the reference of this folder, over sizes and
// strides, with every row alone. The same under the emulator and on a device, where the device check carries
// it. One thread; for tests and the device check only.
#ifndef EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_SWEEP_H_
#define EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepSwiGlu(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_SWIGLU_SWIGLU_CUDA_SWEEP_H_
