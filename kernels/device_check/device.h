// The CUDA device as the check sees it: what it is, how long a launch takes on it, and the two roofs
// that times are compared with, measured here. One thread. Kernels know nothing of it: they take a
// stream.
#ifndef EPIC_KERNELS_DEVICE_CHECK_DEVICE_H_
#define EPIC_KERNELS_DEVICE_CHECK_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/api/gpu.h"

namespace epic {

struct DeviceInfo {
  std::string name;
  int multiprocessors = 0;
  int major = 0;  // compute capability
  int minor = 0;
  size_t memory_bytes = 0;
};

// False, with the driver's words, when there is no device to use.
bool FindDevice(DeviceInfo* info, std::string* why);

struct Timing {
  double median_seconds = 0;
  double min_seconds = 0;
  double max_seconds = 0;
};

// Times `rounds` launches by events, each after the caches were flushed, and one before them that does not
// count.
GpuStatus Measure(const std::function<GpuStatus()>& launch, int rounds, Timing* timing);

// Bytes read plus bytes written a second by the device's own copy of 1 GiB.
double MeasureCopyRoof();
// FLOP a second of mma.sync bf16 with nothing else, on all multiprocessors. (sm_90's wgmma is faster.)
double MeasureMmaRoof();

}  // namespace epic

#endif  // EPIC_KERNELS_DEVICE_CHECK_DEVICE_H_
