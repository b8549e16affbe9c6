// Crash cycles of the whole store with dropped unsynced data; more of them are in crash_cycles_slow_test.cc.
// And that each rule of writing to disk is needed: broken on purpose, the cycles find it.
#include "services/kv_store/faults/testing/crash_cycles.h"

#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "services/kv_store/faults/testing/run_crash_cycles.h"

namespace epic::kv_store {
namespace {

TEST(CrashCyclesTest, NothingAcknowledgedIsLostAndNothingLeaks) { RunCrashCycles(1, 16, 4); }

struct Rule {
  BrokenRule rule;
  uint64_t first_seed;  // of two back-ends, the one that it concerns
  uint64_t step = 2;
};

class BrokenRuleTest : public ::testing::TestWithParam<Rule> {};

TEST_P(BrokenRuleTest, IsFound) {
  CrashCounts counts;
  std::string complaint;
  uint64_t seed = GetParam().first_seed;
  for (int tries = 0; tries < 32 && complaint.empty(); ++tries, seed += GetParam().step) {
    complaint = CrashCycles(seed, GetParam().rule, &counts).Run(4);
  }
  EXPECT_FALSE(complaint.empty()) << "a store that breaks this rule passes";
  std::printf("after %llu crashes: %s\n", static_cast<unsigned long long>(counts.crashes),
              complaint.substr(0, complaint.find('\n')).c_str());
}

std::string NameOf(const ::testing::TestParamInfo<Rule>& info) {
  switch (info.param.rule) {
    case BrokenRule::kNone:
      break;
    case BrokenRule::kNoSyncOfRecords:
      return "NoSyncOfRecords";
    case BrokenRule::kNoFlushOfRows:
      return "NoFlushOfRows";
    case BrokenRule::kNoSyncOfExtents:
      return "NoSyncOfExtents";
    case BrokenRule::kNoSyncBeforeReuse:
      return "NoSyncBeforeReuse";
    case BrokenRule::kNoRemovalOfSlabs:
      return "NoRemovalOfSlabs";
  }
  return "None";
}

INSTANTIATE_TEST_SUITE_P(CrashCycles, BrokenRuleTest,
                         ::testing::Values(Rule{BrokenRule::kNoSyncOfRecords, 100},
                                           Rule{BrokenRule::kNoFlushOfRows, 101},
                                           Rule{BrokenRule::kNoSyncOfExtents, 100},
                                           Rule{BrokenRule::kNoSyncBeforeReuse, 102, 4},
                                           Rule{BrokenRule::kNoRemovalOfSlabs, 101}),
                         NameOf);

}  // namespace
}  // namespace epic::kv_store
