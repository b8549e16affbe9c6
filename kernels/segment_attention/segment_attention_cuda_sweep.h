// Sweeps of the GPU attention kernels (kernels/simt/sweep.h) against the reference of this folder and a model
// of their own rounding. The same under the emulator and on a device, where the device check carries them.
// One thread; for tests and the device check only.
#ifndef EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_SWEEP_H_
#define EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_SWEEP_H_

#include "kernels/simt/sweep.h"

namespace epic {

void SweepLinkAttention(simt::SweepReport* report);
void SweepDecodeAttention(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_SEGMENT_ATTENTION_SEGMENT_ATTENTION_CUDA_SWEEP_H_
