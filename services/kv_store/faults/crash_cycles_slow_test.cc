// Many crash cycles of the whole store; a few are in crash_cycles_test.cc.
#include <gtest/gtest.h>

#include "services/kv_store/faults/testing/run_crash_cycles.h"

namespace epic::kv_store {
namespace {

TEST(CrashCyclesSlowTest, NothingAcknowledgedIsLostAndNothingLeaks) { RunCrashCycles(10'001, 200, 6); }

}  // namespace
}  // namespace epic::kv_store
