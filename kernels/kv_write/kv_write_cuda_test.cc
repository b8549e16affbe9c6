// The GPU's KV writes under the emulator: kernels/simt.
#include "kernels/kv_write/kv_write_cuda.h"

#include <gtest/gtest.h>

#include "kernels/kv_write/kv_write_cuda_sweep.h"
#include "kernels/simt/sweep_test_util.h"

namespace epic {
namespace {

class KvWriteCudaTest : public simt::SweepTest {};

TEST_P(KvWriteCudaTest, RowsAreRotatedRoundedOnceAndPutWhereTheyBelong) { Run(SweepKvWrite); }

INSTANTIATE_TEST_SUITE_P(Orders, KvWriteCudaTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace epic
