// The GPU's gate under the emulator: kernels/simt.
#include "kernels/swiglu/swiglu_cuda.h"

#include <gtest/gtest.h>

#include "kernels/simt/sweep_test_util.h"
#include "kernels/swiglu/swiglu_cuda_sweep.h"

namespace epic {
namespace {

class SwiGluCudaTest : public simt::SweepTest {};

TEST_P(SwiGluCudaTest, EqualsTheReferenceAndARowKeepsItsBytes) { Run(SweepSwiGlu); }

INSTANTIATE_TEST_SUITE_P(Orders, SwiGluCudaTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace epic
