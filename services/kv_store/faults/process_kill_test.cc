// kill -9 of the real store process with random settings; more of it is in process_kill_slow_test.cc.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/kv_store/faults/testing/run_process_lives.h"

namespace epic::kv_store {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(ProcessKillTest, WhatWasAcknowledgedSurvivesKillsWithAnySettings) { RunProcessLives(1, 3, 3); }

TEST(ProcessKillTest, AStoreThatForgetsIsFound) {
  LifeCounts counts;
  ProcessLives lives(4, &counts);
  ASSERT_EQ(lives.Run(1), "");
  for (const auto& entry : std::filesystem::directory_iterator(lives.dir())) {
    std::filesystem::remove_all(entry.path());
  }
  EXPECT_THAT(lives.Run(0), AllOf(HasSubstr("seed 4,"), AnyOf(HasSubstr("\na lost context "),
                                                              HasSubstr("\na lost deletion of context "))))
      << "nothing is left of what was acknowledged";
}

}  // namespace
}  // namespace epic::kv_store
