// As records_model_test.cc, within wider bounds: up to five million states each.
#include "services/kv_store/model/records_model.h"

#include <gtest/gtest.h>

namespace epic::kv_store {
namespace {

Exploration Explore(const RecordRules& rules, const RecordBounds& bounds) {
  return ExploreAndPrint(RecordsModel(rules, bounds));
}

TEST(RecordsModelSlowTest, NoPromiseBreaksWithinWiderBounds) {
  const RecordBounds wide[] = {
      {.changes = 2, .crashes = 1, .losses = 0, .ticks = 1, .expires = true},
      {.changes = 2, .crashes = 1, .losses = 0, .ticks = 3, .expires = false},
      {.changes = 2, .crashes = 2, .losses = 1, .ticks = 0, .expires = false},
      {.changes = 3, .crashes = 1, .losses = 0, .ticks = 0, .expires = false},
      {.changes = 3, .crashes = 0, .losses = 0, .ticks = 1, .expires = true},
      {.changes = 2, .crashes = 1, .losses = 0, .ticks = 1, .expires = false, .spreads = true},
      {.changes = 2, .crashes = 1, .losses = 1, .ticks = 0, .expires = false, .spreads = true},
  };
  for (const RecordBounds& bounds : wide) {
    const Exploration result = Explore({}, bounds);
    EXPECT_EQ(result.fault, "") << result.trace;
    EXPECT_TRUE(result.complete);
  }
}

TEST(RecordsModelSlowTest, WithoutARuleAPromiseBreaks) {
  const struct {
    const char* rule;
    bool RecordRules::*flag;
    RecordBounds bounds;
    const char* fault;
  } cases[] = {
      {"a node without its disk asks all",
       &RecordRules::empty_node_asks_all,
       {.changes = 2, .crashes = 2, .losses = 1, .ticks = 0, .expires = false},
       "denies what is live"},
      {"nobody learns from a node without its disk",
       &RecordRules::empty_is_no_source,
       {.changes = 2, .crashes = 2, .losses = 1, .ticks = 0, .expires = false},
       "denies what is live"},
      {"creation decides",
       &RecordRules::creation_decides,
       {.changes = 3, .crashes = 0, .losses = 0, .ticks = 1, .expires = true},
       "serves what is gone"},
      {"a change carries the record",
       &RecordRules::carries_the_record,
       {.changes = 2, .crashes = 1, .losses = 0, .ticks = 1, .expires = true},
       "serves what is gone"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.rule);
    RecordRules rules;
    rules.*c.flag = false;
    const Exploration result = Explore(rules, c.bounds);
    EXPECT_NE(result.fault.find(c.fault), std::string::npos) << result.fault << "\n" << result.trace;
    EXPECT_NE(result.trace.find("acknowledge"), std::string::npos) << result.trace;
  }
}

}  // namespace
}  // namespace epic::kv_store
