// Runs crash cycles for each of some seeds, or for the one that --gtest_random_seed names. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_FAULTS_TESTING_RUN_CRASH_CYCLES_H_
#define EPIC_SERVICES_KV_STORE_FAULTS_TESTING_RUN_CRASH_CYCLES_H_

#include <cstdint>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "services/kv_store/faults/testing/crash_cycles.h"

namespace epic::kv_store {

inline void RunCrashCycles(uint64_t first, uint64_t seeds, int cycles) {
  const auto one = static_cast<uint64_t>(::testing::GTEST_FLAG(random_seed));
  if (one != 0) first = one;
  if (one != 0) seeds = 1;
  CrashCounts counts;
  for (uint64_t seed = first; seed < first + seeds && !::testing::Test::HasFailure(); ++seed) {
    const std::string complaint = CrashCycles(seed, BrokenRule::kNone, &counts).Run(cycles);
    EXPECT_EQ(complaint, "") << "replay with --gtest_random_seed=" << seed;
  }
  const auto number = [](uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf(
      "seeds %llu..%llu: %llu crashes, %llu opens cut off; %llu changes "
      "acknowledged, %llu deletions, %llu calls cut off, %llu changes of failed calls came through; %llu "
      "changes refused by a failed disk, %llu recoveries; after crashes %llu objects there, %llu of them "
      "safe "
      "before, %llu not\n",
      number(first), number(first + seeds - 1), number(counts.crashes), number(counts.cut_opens),
      number(counts.acknowledged), number(counts.deleted), number(counts.cut_calls),
      number(counts.came_through), number(counts.disk_failures), number(counts.recoveries),
      number(counts.hits_after), number(counts.safe_hits), number(counts.misses_after));
  if (one != 0) return;
  const uint64_t lives = seeds * static_cast<uint64_t>(cycles);
  EXPECT_GE(counts.crashes, lives / 2);
  EXPECT_GE(counts.cut_calls, lives / 16);
  EXPECT_GE(counts.recoveries, lives / 16);
  EXPECT_GE(counts.safe_hits, lives / 8) << "too few to prove anything";
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_FAULTS_TESTING_RUN_CRASH_CYCLES_H_
