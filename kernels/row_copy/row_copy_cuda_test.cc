// The GPU's row copies under the emulator: kernels/simt.
#include "kernels/row_copy/row_copy_cuda.h"

#include <gtest/gtest.h>

#include "kernels/row_copy/row_copy_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class RowCopyCudaTest : public simt::SweepTest {};

TEST_P(RowCopyCudaTest, RowsGoWhereTheyBelongAndNothingElseChanges) { Run(SweepRowCopy); }

INSTANTIATE_TEST_SUITE_P(Orders, RowCopyCudaTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace epic
