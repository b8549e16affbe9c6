#include "kernels/api/dispatch.h"

#include <gtest/gtest.h>

namespace epic {
namespace {

TEST(DispatchTest, FeaturesImplyTheirBase) {
  const CpuFeatures& cpu = GetCpuFeatures();
  EXPECT_TRUE(!cpu.avx512 || cpu.avx2);
  EXPECT_TRUE(!cpu.avx512_bf16 || cpu.avx512);
  EXPECT_TRUE(!cpu.amx_bf16 || cpu.avx512_bf16);
}

TEST(DispatchTest, FeaturesAgreeWithTheCompilersOwnDetection) {
  __builtin_cpu_init();
  const CpuFeatures& cpu = GetCpuFeatures();
  EXPECT_EQ(cpu.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(cpu.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
}

TEST(DispatchTest, TheCpuIsDescribedByItsBestFeature) {
  const CpuFeatures& cpu = GetCpuFeatures();
  EXPECT_EQ(DescribeCpu() == "AMX bf16", cpu.amx_bf16);
  EXPECT_FALSE(DescribeCpu().empty());
}

}  // namespace
}  // namespace epic
