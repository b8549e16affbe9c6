// Every state that three nodes with one context can reach within bounds keeps the promises; and each rule is
// needed: without it the machine shows how a promise breaks.
#include "services/kv_store/model/records_model.h"

#include <gtest/gtest.h>

namespace epic::kv_store {
namespace {

Exploration Explore(const RecordRules& rules, const RecordBounds& bounds) {
  return ExploreAndPrint(RecordsModel(rules, bounds));
}

void ExpectNoFault(const RecordBounds& bounds) {
  const Exploration result = Explore({}, bounds);
  EXPECT_EQ(result.fault, "") << result.trace;
  EXPECT_TRUE(result.complete);
}

TEST(RecordsModelTest, NoPromiseBreaks) {
  ExpectNoFault({.changes = 2, .crashes = 1, .losses = 1, .ticks = 0, .expires = false});
  ExpectNoFault({.changes = 2, .crashes = 1, .losses = 0, .ticks = 1, .expires = false});
  ExpectNoFault({.changes = 2, .crashes = 0, .losses = 0, .ticks = 2, .expires = true});
}

TEST(RecordsModelTest, NoPromiseBreaksWhereNodesSpreadWhatTheyKnow) {
  ExpectNoFault({.changes = 2, .crashes = 0, .losses = 0, .ticks = 2, .expires = true, .spreads = true});
  ExpectNoFault({.changes = 1, .crashes = 1, .losses = 1, .ticks = 1, .expires = false, .spreads = true});
}

TEST(RecordsModelTest, WithoutARuleAPromiseBreaks) {
  const struct {
    const char* rule;
    bool RecordRules::*flag;
    RecordBounds bounds;
    const char* fault;
  } cases[] = {
      {"sync before the answer",
       &RecordRules::sync_before_ack,
       {.changes = 1, .crashes = 2, .losses = 0, .ticks = 0, .expires = false},
       "on no disk"},
      {"every node that is up answers",
       &RecordRules::ack_needs_all_up,
       {.changes = 2, .crashes = 1, .losses = 0, .ticks = 0, .expires = false},
       "denies what is live"},
      {"join before serving",
       &RecordRules::joins_before_serving,
       {.changes = 2, .crashes = 1, .losses = 0, .ticks = 0, .expires = false},
       "denies what is live"},
      {"an expiry names its stamp",
       &RecordRules::expiry_names_its_stamp,
       {.changes = 2, .crashes = 0, .losses = 0, .ticks = 1, .expires = true},
       "denies what is live"},
      {"times pass only while changes can be taken",
       &RecordRules::beat_needs_quorum,
       {.changes = 1, .crashes = 3, .losses = 0, .ticks = 2, .expires = false},
       "no node may ever serve again"},
      {"away for long is empty",
       &RecordRules::long_away_is_removed,
       {.changes = 2, .crashes = 1, .losses = 0, .ticks = 2, .expires = false},
       "serves what is gone"},
      {"changes have a deadline",
       &RecordRules::changes_in_time,
       {.changes = 2, .crashes = 0, .losses = 0, .ticks = 2, .expires = false},
       "serves what is gone"},
      {"repair has a deadline",
       &RecordRules::repair_in_time,
       {.changes = 2, .crashes = 0, .losses = 0, .ticks = 2, .expires = false},
       "serves what is gone"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.rule);
    RecordRules rules;
    rules.*c.flag = false;
    const Exploration result = Explore(rules, c.bounds);
    EXPECT_NE(result.fault.find(c.fault), std::string::npos) << result.fault << "\n" << result.trace;
    // A cluster that is stuck breaks its promise to whoever comes; the others, one that it gave.
    const bool was_promised = c.flag != &RecordRules::beat_needs_quorum;
    EXPECT_EQ(result.trace.find("acknowledge") != std::string::npos, was_promised) << result.trace;
  }
}

}  // namespace
}  // namespace epic::kv_store
