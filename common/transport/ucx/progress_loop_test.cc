#include "common/transport/ucx/progress_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/status_matchers.h"

namespace epic::transport {
namespace {

// Work that tests put in from outside, signalled the way a UCX worker signals: only once armed.
class ScriptedSource final : public EventSource {
 public:
  ScriptedSource() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~ScriptedSource() override { close(fd_); }
  int event_fd() const override { return fd_; }
  bool Progress() override {
    progressed_ += 1;
    if (work_.load() == 0) return false;
    work_ -= 1;
    done_ += 1;
    return true;
  }
  bool Arm() override {
    armed_ += 1;
    eventfd_t ignored;
    eventfd_read(fd_, &ignored);
    return work_.load() == 0;
  }
  void Add(int work) {
    work_ += work;
    eventfd_write(fd_, 1);
  }
  int done() const { return done_.load(); }
  int progressed() const { return progressed_.load(); }
  int armed() const { return armed_.load(); }

 private:
  const int fd_;
  std::atomic<int> work_{0};
  std::atomic<int> done_{0};
  std::atomic<int> progressed_{0};
  std::atomic<int> armed_{0};
};

// Something that a test waits for.
class Event {
 public:
  void Set() {
    MutexLock lock(&mu_);
    set_ = true;
    changed_.SignalAll();
  }
  // False when it did not come in 20 s.
  bool Wait() {
    MutexLock lock(&mu_);
    for (int rounds = 0; !set_ && rounds < 200; ++rounds) changed_.WaitForMs(&mu_, 100);
    return set_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mu_) = false;
};

TEST(ProgressLoopTest, GoesOnLookingForAWhileBeforeItSleeps) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 10, /*poll_ns=*/20'000'000);
  const int64_t begin_ns = SystemClock::Get()->SteadyNs();
  ASSERT_OK(loop.Start());
  const auto slept = [&] { return source.armed() > 0; };
  while (!slept() && SystemClock::Get()->SteadyNs() - begin_ns < 20'000'000'000) std::this_thread::yield();
  EXPECT_TRUE(slept());
  EXPECT_GE(SystemClock::Get()->SteadyNs() - begin_ns, 20'000'000);
  EXPECT_GT(source.progressed(), 10);
  // What comes while it sleeps wakes it as ever.
  source.Add(1);
  Event ran;
  ASSERT_TRUE(loop.TryPost([&] { ran.Set(); }));
  EXPECT_TRUE(ran.Wait());
  loop.Stop();
  EXPECT_EQ(source.done(), 1);
}

TEST(ProgressLoopTest, RunsTasksInOrderOnOneThreadOfItsOwn) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 1000);
  ASSERT_OK(loop.Start());
  std::vector<int> order;
  std::thread::id thread;
  Event last;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(loop.TryPost([&, i] {
      order.push_back(i);
      thread = std::this_thread::get_id();
      if (i == 99) last.Set();
    }));
  }
  ASSERT_TRUE(last.Wait());
  loop.Stop();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(ProgressLoopTest, WorkOfTheSourceWakesTheThread) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 10);
  ASSERT_OK(loop.Start());
  for (int round = 1; round <= 200; ++round) {
    source.Add(3);
    while (source.done() < 3 * round) std::this_thread::yield();
  }
  loop.Stop();
  EXPECT_EQ(source.done(), 600);
}

TEST(ProgressLoopTest, AnIdleThreadSleeps) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 10);
  ASSERT_OK(loop.Start());
  const auto cpu_ns = [] {
    timespec spent{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return spent.tv_sec * 1'000'000'000 + spent.tv_nsec;
  };
  Event rested;
  int64_t before_ns = 0;
  int64_t after_ns = 0;
  int before = 0;
  int after = 0;
  ASSERT_TRUE(loop.TryPost([&] {
    before_ns = cpu_ns();
    before = source.progressed();
    loop.At(SystemClock::Get()->SteadyNs() + 400'000'000, [&] {
      after_ns = cpu_ns();
      after = source.progressed();
      rested.Set();
    });
  }));
  ASSERT_TRUE(rested.Wait());
  EXPECT_LT(after_ns - before_ns, 20'000'000) << "of 400 ms";
  EXPECT_LT(after - before, 20);
  loop.Stop();
}

TEST(ProgressLoopTest, TheQueueIsBounded) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 4);
  ASSERT_OK(loop.Start());
  Event entered;
  Event leave;
  ASSERT_TRUE(loop.TryPost([&] {
    entered.Set();
    leave.Wait();
  }));
  ASSERT_TRUE(entered.Wait());
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(loop.TryPost([] {}));
  EXPECT_FALSE(loop.TryPost([] {}));
  bool ran = false;
  loop.Post([&] { ran = true; });
  leave.Set();
  loop.Stop();
  EXPECT_TRUE(ran);
}

TEST(ProgressLoopTest, TimersFireInOrderAndACancelledOneDoesNot) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 10);
  ASSERT_OK(loop.Start());
  Event done;
  std::string fired;
  ASSERT_TRUE(loop.TryPost([&] {
    const int64_t now_ns = SystemClock::Get()->SteadyNs();
    loop.At(now_ns + 30'000'000, [&] {
      fired += "c";
      done.Set();
    });
    loop.At(now_ns + 10'000'000, [&] { fired += "a"; });
    const TimerId b = loop.At(now_ns + 20'000'000, [&] { fired += "b"; });
    loop.Cancel(b);
    loop.Cancel(b);
  }));
  ASSERT_TRUE(done.Wait());
  loop.Stop();
  EXPECT_EQ(fired, "ac");
}

TEST(ProgressLoopTest, StopRunsWhatIsQueuedThenTheLastTaskAndDropsTheRest) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 10);
  ASSERT_OK(loop.Start());
  std::string ran;
  const auto held = std::make_shared<int>(7);
  ASSERT_TRUE(loop.TryPost([&, held] {
    loop.At(SystemClock::Get()->SteadyNs() + int64_t{3600} * 1'000'000'000, [held] {});
    ran += "a";
    loop.Post([&] { ran += "b"; });
  }));
  loop.Stop([&] { ran += "z"; });
  EXPECT_EQ(ran, "abz");
  EXPECT_FALSE(loop.TryPost([held] {}));
  EXPECT_FALSE(loop.Post([&, held] { ran += "late"; }));
  loop.Stop([&] { ran += "again"; });
  EXPECT_EQ(ran, "abz");
  EXPECT_EQ(held.use_count(), 1);
}

TEST(ProgressLoopTest, ABusySourceDoesNotKeepTheThreadFromStopping) {
  ScriptedSource source;
  source.Add(2'000'000'000);
  ProgressLoop loop(SystemClock::Get(), &source, 10);
  ASSERT_OK(loop.Start());
  Event ran;
  ASSERT_TRUE(loop.TryPost([&] { ran.Set(); }));
  ASSERT_TRUE(ran.Wait());
  loop.Stop();
  EXPECT_GT(source.done(), 0);
}

TEST(ProgressLoopTest, ManyThreadsMayPostWhileItFallsAsleepAndWakes) {
  ScriptedSource source;
  ProgressLoop loop(SystemClock::Get(), &source, 1'000'000);
  ASSERT_OK(loop.Start());
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        EXPECT_TRUE(loop.TryPost([&] { ran += 1; }));
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  loop.Stop();
  EXPECT_EQ(ran.load(), 20'000);
}

}  // namespace
}  // namespace epic::transport
