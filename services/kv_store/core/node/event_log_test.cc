// The ring alone: order, cursors, gaps.
#include "services/kv_store/core/node/event_log.h"

#include <thread>

#include <gtest/gtest.h>

#include "common/base/clock.h"

namespace epic::kv_store {
namespace {

constexpr uint64_t kLife = 77;

Event Named(const std::string& tenant) {
  Event event;
  event.tenant = tenant;
  return event;
}

TEST(EventLogTest, ACursorReadsEachEventOnceAndInOrder) {
  EventLog log(kLife, 10);
  EventCursor cursor = log.End();
  EXPECT_EQ(cursor.sequence, 1u);
  EXPECT_TRUE(log.Read(cursor, 5).events.empty());
  for (const char* name : {"a", "b", "c"}) log.Append(Named(name));
  std::string read;
  for (int page = 0; page < 3; ++page) {
    const EventPage events = log.Read(cursor, 2);
    EXPECT_FALSE(events.gap);
    for (const Event& event : events.events) {
      EXPECT_EQ(event.sequence, cursor.sequence++);
      read += event.tenant;
    }
    EXPECT_EQ(events.next, cursor);
  }
  EXPECT_EQ(read, "abc");
}

TEST(EventLogTest, ACursorThatFellOutOfTheRingGetsAGap) {
  EventLog log(kLife, 3);
  const EventCursor first = log.End();
  for (int event = 0; event < 3; ++event) log.Append(Named("x"));
  EXPECT_EQ(log.Read(first, 10).events.size(), 3u);
  log.Append(Named("y"));
  const EventPage page = log.Read(first, 10);
  EXPECT_TRUE(page.gap);
  EXPECT_TRUE(page.events.empty());
  EXPECT_EQ(page.next, log.End());
  EXPECT_EQ(log.Read({kLife, 2}, 10).events.size(), 3u);
  EXPECT_EQ(log.counts().gaps, 1u);
  EXPECT_EQ(log.counts().appended, 4u);
}

TEST(EventLogTest, ACursorOfAnotherLifeOrFromTheFutureGetsAGap) {
  EventLog log(kLife, 3);
  EXPECT_TRUE(log.Read({kLife + 1, 1}, 10).gap);
  EXPECT_TRUE(log.Read({}, 10).gap);
  EXPECT_TRUE(log.Read({kLife, 2}, 10).gap);
}

}  // namespace
}  // namespace epic::kv_store
