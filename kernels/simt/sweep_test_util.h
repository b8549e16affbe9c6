// Runs a sweep as a test under the emulator: the parameter is the seed of the order of threads, so that a
// missing barrier fails in one of several orders. On the test's thread. Which sweep, and what it expects, is
// the op's. Tests only.
#ifndef EPIC_KERNELS_SIMT_SWEEP_TEST_UTIL_H_
#define EPIC_KERNELS_SIMT_SWEEP_TEST_UTIL_H_

#include <string>

#include <gtest/gtest.h>

#include "kernels/simt/simt.h"
#include "kernels/simt/sweep.h"

namespace epic::simt {

class SweepTest : public ::testing::TestWithParam<int> {
 protected:
  void Run(void (*sweep)(SweepReport*)) {
    SetOrderSeed(static_cast<uint64_t>(GetParam()));
    SweepReport report(/*thorough=*/false);
    sweep(&report);
    EXPECT_GT(report.checks(), 0u);
    EXPECT_EQ(report.failures(), 0u) << "of " << report.checks();
    for (const std::string& message : report.messages()) ADD_FAILURE() << message;
  }
};

}  // namespace epic::simt

#endif  // EPIC_KERNELS_SIMT_SWEEP_TEST_UTIL_H_
