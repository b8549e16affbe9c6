// Sweep of the GPU's KV writes (kernels/simt/sweep.h) against the reference of this folder: rows, heads,
// strides and places in the segment. The same under the emulator and on a device, where the device check
// carries it. One thread; for tests and the device check only.
#ifndef EPIC_KERNELS_KV_WRITE_KV_WRITE_CUDA_SWEEP_H_
#define EPIC_KERNELS_KV_WRITE_KV_WRITE_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepKvWrite(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_KV_WRITE_KV_WRITE_CUDA_SWEEP_H_
