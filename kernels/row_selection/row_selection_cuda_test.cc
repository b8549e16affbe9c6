// The GPU's selection of rows under the emulator (kernels/simt), and the reference itself.
#include "kernels/row_selection/row_selection_cuda.h"

#include <vector>

#include <gtest/gtest.h>

#include "kernels/row_selection/row_selection_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class RowSelectionCudaTest : public simt::SweepTest {};

TEST_P(RowSelectionCudaTest, PickedRowsEqualTheReference) { Run(SweepRowSelection); }

INSTANTIATE_TEST_SUITE_P(Orders, RowSelectionCudaTest, ::testing::Values(1, 2, 3));

TEST(RowSelectionTest, TheReferencePicksTheHighestAndTheFirstAmongEquals) {
  const std::vector<float> values = {2, 9, 2, 2, 7};
  EXPECT_EQ(SelectRowsReference(values, {}, {0, 5, 3, 0}), (std::vector<uint32_t>{0, 1, 4}));
  EXPECT_EQ(SelectRowsReference(values, std::vector<uint8_t>{0, 1, 1, 1, 0}, {0, 5, 2, 0}),
            (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(SelectRowsReference(values, {}, {2, 4, 9, 0}), (std::vector<uint32_t>{2, 3}));
}

}  // namespace
}  // namespace epic
