#include "kernels/api/thread_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include "common/base/check.h"

namespace epic {
namespace {

using Task = std::function<void(size_t, uint32_t)>;

// About 10 microseconds on current CPUs: the gap between two products of one layer, not more.
constexpr int kSpins = 200;

void Pause() { __builtin_ia32_pause(); }

}  // namespace

// A job is published as one word, its ticket: round << 32 | indices not yet taken. Taking index i is a
// compare-and-swap from i + 1 to i, which fails when the round has moved on; so a late worker can neither run
// an old task nor take an index of a round whose task it has not seen.
struct ThreadPool::State {
  // Constant after construction.
  std::vector<std::thread> workers;
  // Synchronise themselves.
  std::atomic<uint64_t> ticket{0};
  std::atomic<const Task*> task{nullptr};
  std::atomic<uint32_t> unfinished{0};
  std::atomic<uint32_t> round{0};  // what parked workers wait on; changes after the ticket
  std::atomic<bool> stopping{false};

  void TakeAll(uint32_t worker) {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & 0xffffffffu) != 0) {
      const Task* mine = task.load(std::memory_order_relaxed);
      if (!ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire)) {
        continue;
      }
      (*mine)((seen & 0xffffffffu) - 1, worker);
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
      seen = ticket.load(std::memory_order_acquire);
    }
  }

  void WorkerLoop(uint32_t worker) {
    uint32_t seen_round = 0;
    while (true) {
      for (int i = 0; i < kSpins && round.load(std::memory_order_acquire) == seen_round; ++i) Pause();
      round.wait(seen_round, std::memory_order_acquire);
      seen_round = round.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_acquire)) return;
      TakeAll(worker);
    }
  }
};

ThreadPool::ThreadPool(uint32_t threads) : state_(std::make_unique<State>()) {
  EPIC_CHECK(threads >= 1);
  state_->workers.reserve(threads - 1);
  for (uint32_t worker = 1; worker < threads; ++worker) {
    state_->workers.emplace_back([state = state_.get(), worker] { state->WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  state_->stopping.store(true, std::memory_order_release);
  state_->round.fetch_add(1, std::memory_order_acq_rel);
  state_->round.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

uint32_t ThreadPool::threads() const { return static_cast<uint32_t>(state_->workers.size()) + 1; }

void ThreadPool::ParallelFor(size_t count, const Task& task) {
  EPIC_CHECK(count < 0xffffffffu);
  State& state = *state_;
  if (state.workers.empty() || count <= 1) {
    for (size_t index = count; index > 0; --index) task(index - 1, 0);
    return;
  }
  const uint32_t round = state.round.load(std::memory_order_relaxed) + 1;
  state.task.store(&task, std::memory_order_relaxed);
  state.unfinished.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
  state.ticket.store((uint64_t{round} << 32) | count, std::memory_order_release);
  state.round.store(round, std::memory_order_release);
  state.round.notify_all();
  state.TakeAll(0);
  uint32_t left = state.unfinished.load(std::memory_order_acquire);
  for (int i = 0; i < kSpins && left != 0; ++i) {
    Pause();
    left = state.unfinished.load(std::memory_order_acquire);
  }
  while (left != 0) {
    state.unfinished.wait(left, std::memory_order_acquire);
    left = state.unfinished.load(std::memory_order_acquire);
  }
}

}  // namespace epic
