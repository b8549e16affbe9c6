// Sweep of the GPU's selection of rows (kernels/simt/sweep.h) against the reference of this folder: counts,
// ties, groups, numbers that are none. The same under the emulator and on a device, where the device check
// carries it. One thread; for tests and the device check only.
#ifndef EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_SWEEP_H_
#define EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepRowSelection(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_ROW_SELECTION_ROW_SELECTION_CUDA_SWEEP_H_
