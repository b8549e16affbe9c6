// Sweep of the GPU's row copies (kernels/simt/sweep.h) against plain loops, with what lies between rows left
// as it was. The same under the emulator and on a device, where the device check carries it. One thread; for
// tests and the device check only.
#ifndef EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_SWEEP_H_
#define EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepRowCopy(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_SWEEP_H_
