// The store against the model of its objects, through random calls of clients, evictions and crashes; more
// seeds are in store_trace_slow_test.cc.
#include <gtest/gtest.h>

#include "services/kv_store/model/objects_tracker.h"
#include "services/kv_store/testing/store_trace.h"

namespace epic::kv_store {
namespace {

using State = ObjectsModel::State;

ObjectsTracker::Fits Reads(uint8_t build) {
  return [build](const State& after) { return after.readers[0].build == build; };
}

// A tracker that has seen a put by writer 0, of key 0.
ObjectsTracker AfterPut() {
  ObjectsTracker tracker(/*disk_evicts=*/false);
  EXPECT_TRUE(tracker.Took({"reserve", 0, 0}));
  EXPECT_TRUE(tracker.Took({"announce", 0, 0}));
  EXPECT_TRUE(tracker.Took({"announce", 0, 1}));
  EXPECT_TRUE(tracker.Took({"commit", 0}));
  return tracker;
}

TEST(StoreTraceTest, TheTrackerKnowsWhatAStoreMayAnswer) {
  ObjectsTracker tracker = AfterPut();
  EXPECT_TRUE(tracker.Took({"acquire", 0, 0}, Reads(1)));
  EXPECT_TRUE(tracker.Took({"release", 0}));
  EXPECT_TRUE(tracker.Restarted(/*crashed=*/true));
  ObjectsTracker lost = tracker;
  EXPECT_TRUE(lost.Missed(0, /*no_memory=*/false)) << "it was not durable yet";
  EXPECT_FALSE(lost.Took({"acquire", 0, 0})) << "what is lost does not come back";
  EXPECT_TRUE(tracker.Took({"acquire", 0, 0}, Reads(1))) << "or it was";
  EXPECT_FALSE(tracker.Missed(0, /*no_memory=*/false)) << "a reader holds it";
}

TEST(StoreTraceTest, TheTrackerRefusesWhatNoStoreMayAnswer) {
  EXPECT_FALSE(AfterPut().Took({"acquire", 0, 0}, Reads(2))) << "a build that nobody made";
  EXPECT_FALSE(AfterPut().Took({"acquire", 0, 1})) << "a key that was not written";
  EXPECT_FALSE(AfterPut().Took({"commit", 0})) << "a second first commit";
  ObjectsTracker deleted = AfterPut();
  EXPECT_TRUE(deleted.Took({"delete", 0}));
  EXPECT_TRUE(deleted.Restarted(/*crashed=*/true));
  EXPECT_TRUE(deleted.Took({"create", 0}));
  EXPECT_FALSE(deleted.Took({"acquire", 0, 0})) << "an object of before the deletion";
  ObjectsTracker again = AfterPut();
  EXPECT_TRUE(again.Took({"delete", 0}));
  EXPECT_TRUE(again.Took({"create", 0}));
  EXPECT_TRUE(again.Took({"commit again", 0}));
  EXPECT_FALSE(again.Took({"acquire", 0, 0})) << "a commit counts once";
}

TEST(StoreTraceTest, TheStoreAnswersAsTheModelAllows) { RunTraces(1, 200); }

}  // namespace
}  // namespace epic::kv_store
