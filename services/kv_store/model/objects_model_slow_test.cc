// As objects_model_test.cc, within wider bounds: up to four million states each.
#include "services/kv_store/model/objects_model.h"

#include <gtest/gtest.h>

namespace epic::kv_store {
namespace {

Exploration Explore(const ObjectRules& rules, const ObjectBounds& bounds) {
  return ExploreAndPrint(ObjectsModel(rules, bounds), 5'000'000);
}

void ExpectNoFault(const ObjectBounds& bounds) {
  const Exploration result = Explore({}, bounds);
  EXPECT_EQ(result.fault, "") << result.trace;
  EXPECT_TRUE(result.complete);
}

TEST(ObjectsModelSlowTest, WritersBreakNoPromiseWithinWiderBounds) {
  ExpectNoFault({.keys = 2, .writers = 2, .puts = 4, .deletes = 1, .creates = 1});
  ExpectNoFault({.keys = 2, .writers = 2, .puts = 3, .deletes = 2, .creates = 2, .crashes = 1});
}

TEST(ObjectsModelSlowTest, ReadersBreakNoPromiseWithinWiderBounds) {
  ExpectNoFault({.keys = 2, .writers = 2, .puts = 3, .copiers = 1, .deletes = 1, .crashes = 1});
  ExpectNoFault({.keys = 2, .writers = 2, .puts = 3, .copiers = 2, .drops = true, .slow_writes = false});
  ExpectNoFault({.keys = 2, .writers = 1, .puts = 3, .copiers = 1, .holders = 1, .deletes = 1, .crashes = 1});
  ExpectNoFault({.keys = 2,
                 .writers = 2,
                 .puts = 3,
                 .copiers = 1,
                 .holders = 1,
                 .deletes = 1,
                 .creates = 1,
                 .slow_writes = false});
}

TEST(ObjectsModelSlowTest, TheDiskBreaksNoPromiseWithinWiderBounds) {
  const ObjectBounds wide[] = {
      {.keys = 2, .puts = 2, .deletes = 1, .crashes = 1, .places = 2, .slow_writes = false},
      {.puts = 3, .deletes = 1, .creates = 1, .crashes = 1, .places = 2, .slow_writes = false},
      {.puts = 2,
       .deletes = 1,
       .creates = 1,
       .crashes = 2,
       .damages = 1,
       .drops = true,
       .places = 2,
       .slow_writes = false},
  };
  for (const ObjectBounds& bounds : wide) ExpectNoFault(bounds);
}

TEST(ObjectsModelSlowTest, DiskAndReadersTogetherBreakNoPromise) {
  ExpectNoFault({.puts = 2, .copiers = 1, .deletes = 1, .crashes = 1, .places = 2, .slow_writes = false});
  ExpectNoFault({.writers = 2,
                 .puts = 2,
                 .copiers = 1,
                 .holders = 1,
                 .deletes = 1,
                 .creates = 1,
                 .crashes = 1,
                 .places = 2,
                 .slow_writes = false,
                 .slow_disk = false});
}

}  // namespace
}  // namespace epic::kv_store
