// Sweep of the GPU's sampling (kernels/simt/sweep.h) against a plain reference: it sorts, and links nothing.
// The same under the emulator and on a device, where the device check carries it. One thread; for tests and
// the device check only.
#ifndef EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_SWEEP_H_
#define EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_SWEEP_H_

#include <cstdint>
#include <span>

#include "kernels/sampling/sampling.h"
#include "kernels/simt/sweep.h"

namespace epic {

// What Draw(FilterCandidates(logits, params), uniform) is. REQUIRES: logits fit for sampling.
uint32_t ReferenceToken(std::span<const float> logits, const FilterParams& params, double uniform);

void SweepSampling(simt::SweepReport* report);

}  // namespace epic

#endif  // EPIC_KERNELS_SAMPLING_SAMPLING_CUDA_SWEEP_H_
