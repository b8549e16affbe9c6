// The queue of the background writer, without a store: who waits for what, and what is dropped.
#include "services/kv_store/core/write_behind.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "services/kv_store/core/arena.h"
#include "services/kv_store/core/host_object.h"
#include "services/kv_store/testing/store_fixtures.h"

namespace epic::kv_store {
namespace {

constexpr int kRounds = 20'000;

// What writes wait for until it is opened.
class Gate {
 public:
  void Pass() {
    const MutexLock lock(&mu_);
    ++arrived_;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void AwaitAWrite() {
    const MutexLock lock(&mu_);
    while (arrived_ == 0) changed_.Wait(&mu_);
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

class WriteBehindTest : public ::testing::Test {
 protected:
  WriteBehind::Item Item(uint64_t ticket) {
    ObjectHead head;
    head.layout = LayoutOf(8);
    return {.key = {},
            .object =
                std::make_shared<const HostObject>(std::move(head), AllocateSlabs(arena_.get(), LayoutOf(8))),
            .ticket = ticket};
  }

  const std::shared_ptr<Arena> arena_ = *Arena::Create({.capacity_bytes = 1 << 20});
  Gate gate_;
  std::vector<uint64_t> written_;  // the writer's, until it is stopped
  std::atomic<uint64_t> ended_{0};
  WriteBehind writer_{{},
                      [this](const WriteBehind::Item& item) {
                        gate_.Pass();
                        written_.push_back(item.ticket);
                        ++ended_;
                        return absl::OkStatus();
                      },
                      [] {}};
};

TEST_F(WriteBehindTest, WritesAreInOrderAndDrainWaitsForThem) {
  for (uint64_t ticket = 0; ticket < 10; ++ticket) writer_.Enqueue(Item(ticket));
  gate_.Open();
  writer_.Drain();
  EXPECT_EQ(ended_, 10u);
  writer_.Stop();
  EXPECT_EQ(written_, (std::vector<uint64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  writer_.Drain();
}

// Those that are given up end before the write that began before them: however many, they are not its end.
TEST_F(WriteBehindTest, DrainWaitsForTheRunningWriteWhileLaterItemsAreGivenUp) {
  writer_.Enqueue(Item(0));
  gate_.AwaitAWrite();
  std::atomic<bool> begun{false}, drained{false};
  std::thread waiting([&] {
    begun = true;
    writer_.Drain();
    EXPECT_EQ(ended_, 1u);
    drained = true;
  });
  while (!begun) std::this_thread::yield();
  for (int round = 0; round < kRounds && !drained; ++round) {
    writer_.Enqueue(Item(1));
    EXPECT_TRUE(writer_.GiveUp(1));
    std::this_thread::yield();
  }
  EXPECT_FALSE(drained);
  gate_.Open();
  waiting.join();
  writer_.Stop();
  EXPECT_EQ(written_, std::vector<uint64_t>{0});
}

TEST_F(WriteBehindTest, DrainDoesNotWaitForWhatComesAfterIt) {
  writer_.Enqueue(Item(0));
  writer_.Enqueue(Item(1));
  gate_.AwaitAWrite();
  EXPECT_TRUE(writer_.GiveUp(1)) << "not the one that runs";
  EXPECT_EQ(writer_.dropped(), 1u);
  EXPECT_EQ(writer_.pending(), 1u);
  std::atomic<bool> stop{false};
  std::thread others([&] {
    for (uint64_t ticket = 2; !stop; ++ticket) {
      writer_.Enqueue(Item(ticket));
      while (writer_.pending() > 20 && !stop) std::this_thread::yield();
    }
  });
  gate_.Open();
  writer_.Drain();  // ends, though the queue is never empty for long
  stop = true;
  others.join();
}

}  // namespace
}  // namespace epic::kv_store
