// Times of the GPU kernels at shapes of real models, each with the share of a measured roof. The sweeps
// check results; these only time. One thread, on the device that main.cc has chosen; what they allocate they
// free.
#ifndef EPIC_KERNELS_DEVICE_CHECK_BENCHES_H_
#define EPIC_KERNELS_DEVICE_CHECK_BENCHES_H_

#include <string>
#include <vector>

#include "kernels/device_check/device.h"

namespace epic {

struct BenchResult {
  std::string name;
  Timing timing;
  double rate = 0;  // FLOP/s or bytes/s of the median
  bool is_flop = false;
  std::string error;  // empty when it ran
};

std::vector<BenchResult> RunBenches();

}  // namespace epic

#endif  // EPIC_KERNELS_DEVICE_CHECK_BENCHES_H_
