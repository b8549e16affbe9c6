// Readers and writers of one lock on many threads, and what is kept for each slot. For ThreadSanitizer.
#include "common/base/shared_mutex.h"

#include <bit>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace epic {
namespace {

constexpr int kThreads = 4;
constexpr int kSteps = 20'000;

TEST(SharedMutexTest, ReadersNeverSeeHalfAChange) {
  SharedMutex mu;
  uint64_t first = 0, second = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int step = 0; step < kSteps; ++step) {
        if ((step + thread) % 16 == 0) {
          const ExclusiveLock lock(&mu);
          ++first;
          ++second;
        } else {
          const SharedLock lock(&mu);
          ASSERT_EQ(first, second);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first, uint64_t{kThreads} * kSteps / 16);
}

TEST(SharedMutexTest, WhoHasASlotHasWhatIsKeptForIt) {
  SharedMutex mu;
  EXPECT_TRUE(std::has_single_bit(mu.slots()));
  std::vector<uint64_t> counts(mu.slots());
  uint64_t taken = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int step = 0; step < kSteps; ++step) {
        {
          const SharedLock lock(&mu);
          ++counts[lock.slot()];
        }
        if (step % 64 != 0) continue;
        const ExclusiveLock lock(&mu);
        for (uint64_t& count : counts) taken += std::exchange(count, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint64_t count : counts) taken += count;
  EXPECT_EQ(taken, uint64_t{kThreads} * kSteps);
}

TEST(SharedMutexTest, AWaiterLetsOthersInAndSeesWhatTheyChanged) {
  SharedMutex mu;
  SharedCondVar changed;
  int turn = 0;
  const auto play = [&](int mine) {
    for (int step = 0; step < 1000; ++step) {
      const ExclusiveLock lock(&mu);
      while (turn != mine) changed.Wait(&mu);
      turn = 1 - mine;
      changed.SignalAll();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn, 0);
}

}  // namespace
}  // namespace epic
