// The GPU's squared distances under the emulator (kernels/simt).
#include "kernels/value_distance/value_distance_cuda.h"

#include <gtest/gtest.h>

#include "kernels/simt/sweep_test_util.h"
#include "kernels/value_distance/value_distance_cuda_sweep.h"

namespace epic {
namespace {

class ValueDistanceCudaTest : public simt::SweepTest {};

TEST_P(ValueDistanceCudaTest, EqualsTheReferenceAndARowKeepsItsBytes) { Run(SweepValueDistance); }

INSTANTIATE_TEST_SUITE_P(Orders, ValueDistanceCudaTest, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace epic
