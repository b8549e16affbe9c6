#include "common/base/executor.h"

#include <atomic>
#include <future>
#include <memory>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/testing/manual_timers.h"

namespace epic {
namespace {

TEST(ExecutorTest, RefusesNewWorkWhenFullButTakesTheNextStepOfAdmittedWork) {
  ThreadExecutor executor(1, 1);
  std::promise<void> running, release;
  ASSERT_TRUE(executor.TrySubmit([&] {
    running.set_value();
    release.get_future().wait();
  }));
  running.get_future().wait();
  std::atomic<int> ran = 0;
  EXPECT_TRUE(executor.TrySubmit([&] { ++ran; }));
  EXPECT_FALSE(executor.TrySubmit([&] { ran += 100; }));
  executor.Submit([&] { ++ran; });
  release.set_value();
  executor.Stop();
  EXPECT_EQ(ran, 2);
}

TEST(ExecutorTest, StopRunsWhatIsQueuedAndLaterStepsRunAtOnce) {
  ThreadExecutor executor(2, 100);
  std::atomic<int> ran = 0;
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(executor.TrySubmit([&] { ++ran; }));
  executor.Stop();
  executor.Stop();
  EXPECT_EQ(ran, 50);
  EXPECT_FALSE(executor.TrySubmit([&] { ++ran; }));
  executor.Submit([&] { ++ran; });
  EXPECT_EQ(ran, 51);
}

TEST(TimersTest, FireInOrderOfTimeAndNotAfterCancel) {
  TimerThread timers(SystemClock::Get());
  const int64_t now_ns = SystemClock::Get()->SteadyNs();
  std::promise<void> running, release, done;
  timers.At(now_ns, [&] {  // holds the thread until the others are there
    running.set_value();
    release.get_future().wait();
  });
  running.get_future().wait();
  std::atomic<int> order = 0;
  const TimerId never = timers.At(now_ns + 1, [&] { order = -100; });
  timers.At(now_ns + 3, [&] { order = order * 10 + 2; });
  timers.At(now_ns + 2, [&] { order = order * 10 + 1; });
  timers.Cancel(never);
  timers.Cancel(12345);
  timers.At(SystemClock::Get()->SteadyNs() + 5'000'000, [&] { done.set_value(); });
  release.set_value();
  done.get_future().wait();
  timers.Stop();
  EXPECT_EQ(order, 12);
}

TEST(TimersTest, StopDropsWhatIsNotDueAndTakesNothingMore) {
  TimerThread timers(SystemClock::Get());
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  const int64_t far_ns = SystemClock::Get()->SteadyNs() + 3'600'000'000'000;
  timers.At(far_ns, [held] { ++*held; });
  held.reset();
  EXPECT_FALSE(watch.expired());
  timers.Stop();
  timers.Stop();
  EXPECT_TRUE(watch.expired());
  bool fired = false;
  timers.At(0, [&] { fired = true; });
  EXPECT_FALSE(fired);
}

TEST(TimersTest, ManualTimersFireOnlyWhenTheClockMoves) {
  ManualClock clock;
  testing::ManualTimers timers(&clock);
  int fired = 0;
  timers.At(clock.SteadyNs() + 10'000'000, [&] { ++fired; });
  timers.AdvanceMs(9);
  EXPECT_EQ(fired, 0);
  timers.AdvanceMs(1);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(timers.pending(), 0u);
}

}  // namespace
}  // namespace epic
