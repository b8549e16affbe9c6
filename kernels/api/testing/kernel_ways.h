// The implementations of an op that its test walks over: the reference, and the CPU's, once for each SIMD
// target that it was compiled for and this CPU has. One list for all kernels.
//
// A forced target holds for the whole process: one at a time, and no kernel may run while it changes. Tests
// only.
#ifndef EPIC_KERNELS_API_TESTING_KERNEL_WAYS_H_
#define EPIC_KERNELS_API_TESTING_KERNEL_WAYS_H_

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/api/dispatch.h"

namespace epic::testing {

// AVX-512, AVX2 and the baseline, as far as this CPU has them. The best one first.
std::vector<int64_t> SimdTargets();
// For the names of tests: "AVX3", "AVX2", "SCALAR".
std::string NameOfSimdTarget(int64_t target);

// Highway's dispatch takes `target` while this lives. 0: the best one, as without this.
class ForcedSimdTarget {
 public:
  explicit ForcedSimdTarget(int64_t target);
  ~ForcedSimdTarget();
  ForcedSimdTarget(const ForcedSimdTarget&) = delete;
  ForcedSimdTarget& operator=(const ForcedSimdTarget&) = delete;
};

struct KernelWay {
  std::string name;
  KernelPath path = KernelPath::kAuto;
  int64_t simd_target = 0;  // 0: none is forced
};
std::vector<KernelWay> KernelWays();

// A suite that runs once for each of KernelWays.
class KernelWayTest : public ::testing::TestWithParam<KernelWay> {
 protected:
  static KernelPath path() { return GetParam().path; }

 private:
  const ForcedSimdTarget forced_{GetParam().simd_target};
};
std::string NameOfWay(const ::testing::TestParamInfo<KernelWay>& info);

}  // namespace epic::testing

#endif  // EPIC_KERNELS_API_TESTING_KERNEL_WAYS_H_
