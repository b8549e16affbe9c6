// The GPU's sampling under the emulator: kernels/simt.
#include "kernels/sampling/sampling_cuda.h"

#include <gtest/gtest.h>

#include "kernels/sampling/sampling_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class SamplingCudaTest : public simt::SweepTest {};

TEST_P(SamplingCudaTest, DrawsTheTokenThatTheHostDraws) { Run(SweepSampling); }

INSTANTIATE_TEST_SUITE_P(Orders, SamplingCudaTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace epic
