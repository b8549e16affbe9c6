// The GPU's selection of rows under the emulator (kernels/simt), and the reference itself.
#include "kernels/row_selection/row_selection_cuda.h"

#include <vector>

#include <gtest/gtest.h>

#include "kernels/row_selection/row_selection_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class RowSelectionCudaTest : public simt::SweepTest {};

TEST_P(RowSelectionCudaTest, DistancesAndPickedRowsEqualTheReference) { Run(SweepRowSelection); }

INSTANTIATE_TEST_SUITE_P(Orders, RowSelectionCudaTest, ::testing::Values(1, 2, 3));

TEST(RowSelectionTest, TheReferencePicksTheHighestAndTheFirstAmongEquals) {
  const std::vector<float> values = {2, 9, 2, 2, 7};
  EXPECT_EQ(SelectRowsReference(values, {}, {0, 5, 3, 0}), (std::vector<uint32_t>{0, 1, 4}));
  EXPECT_EQ(SelectRowsReference(values, std::vector<uint8_t>{0, 1, 1, 1, 0}, {0, 5, 2, 0}),
            (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(SelectRowsReference(values, {}, {2, 4, 9, 0}), (std::vector<uint32_t>{2, 3}));
}

TEST(RowSelectionTest, TheReferenceMeasuresSquaredDistances) {
  const std::vector<float> fresh = {1, 2, 3, 4};
  const std::vector<Bf16> stored = {ToBf16(1), ToBf16(0), ToBf16(1), ToBf16(4)};
  std::vector<float> out(1);
  ValueDistanceReference({.fresh = fresh.data(),
                          .fresh_stride = 4,
                          .rows = 1,
                          .kv_heads = 2,
                          .head_dim = 2,
                          .stored = stored.data(),
                          .head_stride = 2,
                          .out = out.data()});
  EXPECT_EQ(out[0], 8);
}

}  // namespace
}  // namespace epic
