#include "kernels/api/thread_pool.h"

#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/api/parallel.h"

namespace epic {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(ThreadPoolTest, EveryIndexRunsOnceOverManyRounds) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const size_t count : {0u, 1u, 2u, 3u, 7u, 64u, 1000u}) {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> runs(count);
      pool.ParallelFor(count, [&](size_t index, uint32_t worker) {
        EXPECT_LT(worker, GetParam());
        ++runs[index];
      });
      for (const auto& run : runs) ASSERT_EQ(run.load(), 1);
    }
  }
}

TEST_P(ThreadPoolTest, PlainWritesOfTasksAreVisibleToTheCaller) {
  ThreadPool pool(GetParam());
  std::vector<int> values(512);
  for (int round = 1; round <= 500; ++round) {
    pool.ParallelFor(values.size(), [&](size_t index, uint32_t) { values[index] += round; });
  }
  for (const int value : values) EXPECT_EQ(value, 500 * 501 / 2);
}

TEST_P(ThreadPoolTest, AWorkerRunsOneTaskAtATime) {
  ThreadPool pool(GetParam());
  std::vector<int> busy(GetParam());
  for (int round = 0; round < 100; ++round) {
    pool.ParallelFor(64, [&](size_t, uint32_t worker) {
      EXPECT_EQ(++busy[worker], 1);
      --busy[worker];
    });
  }
}

TEST_P(ThreadPoolTest, APoolThatNeverWorkedEnds) { ThreadPool pool(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1u, 2u, 3u, 8u));

TEST(ForRowBlocksTest, RangesCoverAllRowsOnce) {
  ThreadPool pool(2);
  for (ThreadPool* lent : {static_cast<ThreadPool*>(nullptr), &pool}) {
    for (const size_t rows : {0u, 1u, 15u, 16u, 17u, 100u}) {
      std::vector<std::atomic<int>> runs(rows);
      ForRowBlocks(lent, rows, 16, [&](size_t begin, size_t end) {
        for (size_t r = begin; r < end; ++r) ++runs[r];
      });
      for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
    }
  }
}

}  // namespace
}  // namespace epic
