// The GPU's norms under the emulator: kernels/simt.
#include "kernels/rms_norm/rms_norm_cuda.h"

#include <gtest/gtest.h>

#include "kernels/rms_norm/rms_norm_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class RmsNormCudaTest : public simt::SweepTest {};

TEST_P(RmsNormCudaTest, EqualsTheReferenceAndARowKeepsItsBytes) { Run(SweepRmsNorm); }

INSTANTIATE_TEST_SUITE_P(Orders, RmsNormCudaTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace epic
