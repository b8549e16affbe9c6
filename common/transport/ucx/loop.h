// Where everything of one transport runs, one task at a time: lanes, sessions and windows need no lock.
//
// Tasks come from any thread by TryPost and Post; the timers (common/base/timers.h) belong to the loop and
// are used from its tasks only. ProgressLoop is the real one; tests use testing/manual_loop.h. Hold it by
// shared_ptr in callbacks that others keep: a task posted to a loop that has stopped is dropped, with what it
// holds, and never runs.
#ifndef EPIC_COMMON_TRANSPORT_UCX_LOOP_H_
#define EPIC_COMMON_TRANSPORT_UCX_LOOP_H_

#include <functional>

#include "common/base/timers.h"

namespace epic::transport {

class Loop : public Timers {
 public:
  // For new work. False when the queue is full or the loop has stopped; the task is then dropped.
  [[nodiscard]] virtual bool TryPost(std::function<void()> task) = 0;
  // For the next step of work that was admitted already (one such step at a time for each admitted piece of
  // work, so the queue stays bounded by what was admitted). False when the loop has stopped: it is dropped.
  virtual bool Post(std::function<void()> task) = 0;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_LOOP_H_
