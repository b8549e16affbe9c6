#include "kernels/api/testing/kernel_ways.h"

#include "kernels/api/simd_targets.h"
// After simd_targets.h.
#include "hwy/highway.h"

namespace epic::testing {

std::vector<int64_t> SimdTargets() {
  std::vector<int64_t> targets;
  for (const int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_STATIC_TARGET}}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  return targets;
}

std::string NameOfSimdTarget(int64_t target) { return hwy::TargetName(target); }

ForcedSimdTarget::ForcedSimdTarget(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

ForcedSimdTarget::~ForcedSimdTarget() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

std::vector<KernelWay> KernelWays() {
  std::vector<KernelWay> ways = {{"reference", KernelPath::kReference}};
  for (const int64_t target : SimdTargets()) {
    ways.push_back({"cpu_" + NameOfSimdTarget(target), KernelPath::kCpu, target});
  }
  return ways;
}

std::string NameOfWay(const ::testing::TestParamInfo<KernelWay>& info) { return info.param.name; }

}  // namespace epic::testing
