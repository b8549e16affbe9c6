// Many lives of the real store process; a few are in process_kill_test.cc.
#include <gtest/gtest.h>

#include "services/kv_store/faults/testing/run_process_lives.h"

namespace epic::kv_store {
namespace {

TEST(ProcessKillSlowTest, WhatWasAcknowledgedSurvivesKillsWithAnySettings) { RunProcessLives(1'001, 40, 8); }

}  // namespace
}  // namespace epic::kv_store
