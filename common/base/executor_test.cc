#include "common/base/executor.h"

#include <atomic>
#include <future>

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
  std::promise<void> done;
  std::atomic<int> order = 0;
  const TimerId never = timers.At(now_ns + 5'000'000, [&] { order = -100; });
  timers.At(now_ns + 20'000'000, [&] {
    order = order * 10 + 2;
    done.set_value();
  });
  timers.At(now_ns + 10'000'000, [&] { order = order * 10 + 1; });
  timers.Cancel(never);
  timers.Cancel(12345);
  done.get_future().wait();
  timers.Stop();
  EXPECT_EQ(order, 12);
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
