// Crash cycles of the whole store with dropped unsynced data; more of them are in crash_cycles_slow_test.cc.
// And that each rule of writing to disk is needed: broken on purpose, the cycles find it.
#include "services/kv_store/faults/testing/crash_cycles.h"

#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"
#include "services/kv_store/faults/testing/run_crash_cycles.h"
#include "services/kv_store/faults/testing/whole_store.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

TEST(CrashCyclesTest, NothingAcknowledgedIsLostAndNothingLeaks) { RunCrashCycles(1, 16, 4); }

// Objects that were safe leave a disk that others then fill, and the power goes before the removals are
// synced. Returns what is wrong then. In the cycles this is too seldom to be found each time.
std::string FillWhatWasLeft(uint64_t seed, BrokenRule rule) {
  constexpr uint32_t kTokens = 8;
  constexpr uint64_t kObjects = 5;
  const KvLayout layout = LayoutOf(kTokens, 2, 2, 1024);
  const auto key = [](uint64_t context) {
    return ObjectKey{CacheId::Of("default", {}, TokensOf(context, kTokens)), {}};
  };
  Rng rng(seed);
  const ManualClock clock;
  WholeStore whole(seed, {.store = {.memory_bytes = 16 * layout.TotalBytes(),
                                    .disk_bytes_max = (kObjects + 1) * layout.TotalBytes() * 10 / 9,
                                    .clock = &clock},
                          .broken = rule});
  EXPECT_OK(whole.Open());
  for (uint64_t context = 0; context < 2 * kObjects; ++context) {
    NewContext create = ContextOf(context, kTokens);
    if (context < kObjects) create.durability = Durability::kObject;
    EXPECT_OK(whole.core()->CreateContext(create));
  }
  for (uint64_t context = 0; context < 2 * kObjects; ++context) {
    if (context >= kObjects) {
      EXPECT_OK(whole.core()->DropObject("default", key(context - kObjects)));
    }
    EXPECT_OK(PutObject(whole.core(), "default", key(context), layout, context));
    whole.core()->DrainWrites();
  }
  whole.Crash(&rng);
  EXPECT_OK(whole.Open());
  std::string wrong;
  for (uint64_t context = 0; context < 2 * kObjects; ++context) {
    const auto found = whole.core()->Acquire("default", key(context), layout);
    EXPECT_OK(found);
    if (found->object == nullptr ? found->cause != MissCause::kNeverStored
                                 : !Holds(*found->object, context)) {
      wrong = "the entry of context " + std::to_string(context) + " names pages of others";
    }
  }
  return wrong;
}

TEST(CrashCyclesTest, PagesAreUsedAgainOnlyWhenTheRemovalOfTheirEntryIsSafe) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    EXPECT_EQ(FillWhatWasLeft(seed, BrokenRule::kNone), "") << "seed " << seed;
    found += FillWhatWasLeft(seed, BrokenRule::kNoSyncBeforeReuse).empty() ? 0 : 1;
  }
  std::printf("a store that breaks this rule was found %d times of 16\n", found);
  EXPECT_GT(found, 0) << "a store that breaks this rule passes";
}

struct Rule {
  BrokenRule rule;
  uint64_t first_seed;  // of two back-ends, the one that it concerns
};

class BrokenRuleTest : public ::testing::TestWithParam<Rule> {};

TEST_P(BrokenRuleTest, IsFound) {
  CrashCounts counts;
  std::string complaint;
  uint64_t seed = GetParam().first_seed;
  for (int tries = 0; tries < 32 && complaint.empty(); ++tries, seed += 2) {
    complaint = CrashCycles(seed, GetParam().rule, &counts).Run(4);
  }
  EXPECT_FALSE(complaint.empty()) << "a store that breaks this rule passes";
  std::printf("after %llu crashes: %s\n", static_cast<unsigned long long>(counts.crashes),
              complaint.substr(0, complaint.find('\n')).c_str());
}

std::string NameOf(const ::testing::TestParamInfo<Rule>& info) {
  switch (info.param.rule) {
    case BrokenRule::kNone:
    case BrokenRule::kNoSyncBeforeReuse:  // has a test of its own
      break;
    case BrokenRule::kNoSyncOfRecords:
      return "NoSyncOfRecords";
    case BrokenRule::kNoFlushOfRows:
      return "NoFlushOfRows";
    case BrokenRule::kNoSyncOfExtents:
      return "NoSyncOfExtents";
    case BrokenRule::kNoRemovalOfSlabs:
      return "NoRemovalOfSlabs";
  }
  return "None";
}

INSTANTIATE_TEST_SUITE_P(CrashCycles, BrokenRuleTest,
                         ::testing::Values(Rule{BrokenRule::kNoSyncOfRecords, 100},
                                           Rule{BrokenRule::kNoFlushOfRows, 101},
                                           Rule{BrokenRule::kNoSyncOfExtents, 100},
                                           Rule{BrokenRule::kNoRemovalOfSlabs, 101}),
                         NameOf);

}  // namespace
}  // namespace epic::kv_store
