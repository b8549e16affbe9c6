#include "services/kv_store/core/disk_calls.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace epic::kv_store {
namespace {

using End = DiskCalls::End;

// What calls wait for until it is opened.
class Gate {
 public:
  void Pass() {
    const MutexLock lock(&mu_);
    ++arrived_;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void AwaitArrived(int count) {
    const MutexLock lock(&mu_);
    while (arrived_ < count) changed_.Wait(&mu_);
  }
  void Open() {
    const MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mu_) = false;
  int arrived_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST(DiskCallsTest, WithoutABoundACallIsMadeWhereItIsAskedFor) {
  DiskCalls calls({});
  std::thread::id thread;
  EXPECT_EQ(calls.Run([&] { thread = std::this_thread::get_id(); }), End::kDone);
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST(DiskCallsTest, ResultsComeBack) {
  DiskCalls calls({.wait_ms = 60'000, .threads_max = 4});
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 16; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 100; ++i) {
        const auto result = calls.Ask<int>([caller, i] { return caller * 100 + i; });
        ASSERT_EQ(result, caller * 100 + i);
        sum += *result;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 1600 * 1599 / 2);
  EXPECT_EQ(calls.late(), 0u);
}

TEST(DiskCallsTest, WhoWaitsTooLongGoesAndTheCallGoesOn) {
  Gate gate;
  auto done = std::make_shared<std::atomic<bool>>(false);
  auto owned = std::make_shared<int>(7);
  const std::weak_ptr<int> watched = owned;
  DiskCalls calls({.wait_ms = 5, .late_max = 2});
  EXPECT_EQ(calls.Run([&gate, done, owned = std::move(owned)] {
    gate.Pass();
    *done = true;
  }),
            End::kLate);
  EXPECT_EQ(calls.Ask<int>([] { return 1; }), 1) << "others are served";
  EXPECT_FALSE(watched.expired()) << "what it needs is there until it ends";
  EXPECT_FALSE(*done);
  gate.Open();
  calls.Stop();
  EXPECT_TRUE(*done);
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(calls.late(), 1u);
}

TEST(DiskCallsTest, WhileTooManyAreLateOthersAreRefusedAtOnce) {
  Gate gate;
  DiskCalls calls({.wait_ms = 5, .late_max = 2});
  EXPECT_EQ(calls.Run([&] { gate.Pass(); }), End::kLate);
  EXPECT_EQ(calls.Run([&] { gate.Pass(); }), End::kLate);
  End end = End::kDone;
  EXPECT_FALSE(calls.Ask<int>([] { return 1; }, 600'000, &end).has_value());
  EXPECT_EQ(end, End::kRefused);
  gate.Open();
  // It recovers alone, as soon as one of them ended.
  while (end == End::kRefused) end = calls.Run([] {}, 600'000);
  EXPECT_EQ(end, End::kDone);
}

TEST(DiskCallsTest, WhatWasNotBegunInTimeNeverIs) {
  Gate gate;
  DiskCalls calls({.wait_ms = 5, .threads_max = 1, .late_max = 9});
  std::thread first([&] { calls.Run([&] { gate.Pass(); }, 600'000); });
  gate.AwaitArrived(1);
  std::atomic<bool> begun{false};
  EXPECT_EQ(calls.Run([&] { begun = true; }), End::kRefused);
  gate.Open();
  first.join();
  calls.Stop();
  EXPECT_FALSE(begun);
}

TEST(DiskCallsTest, StopEndsWhatWasBegunAndRefusesTheRest) {
  Gate gate;
  DiskCalls calls({.wait_ms = 600'000, .threads_max = 1});
  std::thread first([&] { EXPECT_EQ(calls.Run([&] { gate.Pass(); }), End::kDone); });
  gate.AwaitArrived(1);
  std::thread second([&] {
    const End end = calls.Run([] {});
    EXPECT_NE(end, End::kLate);
  });
  std::thread stop([&] { calls.Stop(); });
  gate.Open();
  first.join();
  second.join();
  stop.join();
  EXPECT_EQ(calls.Run([] {}), End::kDone) << "after it, on the thread of the caller";
}

}  // namespace
}  // namespace epic::kv_store
