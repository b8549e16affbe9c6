// How many pieces may be under way to this process at a time, over all peers. Of one loop, which outlives it;
// not thread-safe.
#ifndef EPIC_COMMON_TRANSPORT_UCX_FLOW_BUDGET_H_
#define EPIC_COMMON_TRANSPORT_UCX_FLOW_BUDGET_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "common/base/check.h"
#include "common/transport/ucx/loop.h"

namespace epic::transport {

class FlowBudget {
 public:
  // REQUIRES: pieces > 0.
  FlowBudget(Loop* loop, uint32_t pieces) : loop_(loop), free_(pieces) { EPIC_CHECK(pieces > 0); }

  // A piece, to be given back; false when there is none now, or others wait for it. Then ask WhenFree.
  [[nodiscard]] bool Take() {
    if (free_ == 0 || (!waiting_.empty() && !waking_)) return false;
    free_ -= 1;
    return true;
  }
  // Calls `wake` once, in a task of its own, when there may be a piece. Those who ask first are woken first.
  void WhenFree(std::function<void()> wake) { waiting_.push_back(std::move(wake)); }
  void Give() {
    free_ += 1;
    if (waiting_.empty() || wake_due_) return;
    wake_due_ = loop_->Post([this] { Wake(); });
  }
  uint32_t free() const { return free_; }

 private:
  void Wake() {
    wake_due_ = false;
    waking_ = true;
    // Whoever is woken may need nothing any more.
    while (free_ > 0 && !waiting_.empty()) {
      const auto wake = std::move(waiting_.front());
      waiting_.pop_front();
      wake();
    }
    waking_ = false;
  }

  Loop* const loop_;
  uint32_t free_;
  bool wake_due_ = false;
  bool waking_ = false;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_FLOW_BUDGET_H_
