// Runs lives of store processes for seeds in a row. Tests only.
#ifndef EPIC_SERVICES_KV_STORE_FAULTS_TESTING_RUN_PROCESS_LIVES_H_
#define EPIC_SERVICES_KV_STORE_FAULTS_TESTING_RUN_PROCESS_LIVES_H_

#include <cstdio>

#include <gtest/gtest.h>

#include "services/kv_store/faults/testing/process_lives.h"

namespace epic::kv_store {

inline void RunProcessLives(uint64_t first_seed, uint64_t seeds, int lives) {
  LifeCounts counts;
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    const std::string complaint = ProcessLives(seed, &counts).Run(lives);
    ASSERT_EQ(complaint, "");
  }
  const auto number = [](uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf(
      "seeds %llu to %llu: %llu kills; acknowledged: %llu contexts, %llu durable objects, %llu "
      "deletions; %llu objects compared, %llu misses\n",
      number(first_seed), number(first_seed + seeds - 1), number(counts.kills), number(counts.created),
      number(counts.durable), number(counts.deleted), number(counts.hits), number(counts.misses));
  EXPECT_EQ(counts.kills, seeds * static_cast<uint64_t>(lives));
  EXPECT_GT(counts.created, counts.kills);
  EXPECT_GT(counts.deleted, 0u);
  EXPECT_GT(counts.hits, counts.kills);
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_FAULTS_TESTING_RUN_PROCESS_LIVES_H_
