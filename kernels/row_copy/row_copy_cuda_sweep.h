// Sweep of the GPU's row copies (kernels/simt/sweep.h) against plain loops.
#ifndef EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_SWEEP_H_
#define EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepRowCopy(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_ROW_COPY_ROW_COPY_CUDA_SWEEP_H_
