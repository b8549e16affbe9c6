// One thread that progresses an EventSource, runs posted tasks and fires timers, and sleeps in epoll when
// there has been nothing to do for a while.
//
// TryPost, Post and Stop come from any thread; At and Cancel of the timers from the loop's own tasks, or
// before Start. It knows nothing of UCX: UcxFabric is its EventSource, and tests have one of their own.
#ifndef EPIC_COMMON_TRANSPORT_UCX_PROGRESS_LOOP_H_
#define EPIC_COMMON_TRANSPORT_UCX_PROGRESS_LOOP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/transport/ucx/loop.h"

namespace epic::transport {

// What a loop progresses. Called on the loop's thread only.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Becomes readable when something happens after Arm returned true. The same for the source's whole life.
  virtual int event_fd() const = 0;
  // Does some of what there is to do; true when it did anything. Never blocks.
  virtual bool Progress() = 0;
  // Asks for a signal on event_fd. False: something happened meanwhile, call Progress first.
  virtual bool Arm() = 0;
};

class ProgressLoop final : public Loop {
 public:
  // `poll_ns`: how long it goes on looking after something has happened before it sleeps; waking a thread
  // takes longer than most waits within a transfer. 0: it sleeps at once.
  // REQUIRES: max_queue > 0, poll_ns >= 0; `clock` and `source` outlive Stop.
  ProgressLoop(const Clock* clock, EventSource* source, size_t max_queue, int64_t poll_ns = 0);
  ~ProgressLoop() override { Stop(); }
  ProgressLoop(const ProgressLoop&) = delete;
  ProgressLoop& operator=(const ProgressLoop&) = delete;

  // Makes the thread. Errors: Unavailable when the system has no descriptor or thread left. Once.
  absl::Status Start();
  // Runs what is queued, then `last` on the loop's thread, and waits for the thread. Timers that are not due
  // are dropped. Idempotent: only the first call's `last` runs. Not from one of its own tasks.
  void Stop(std::function<void()> last = nullptr);

  bool TryPost(std::function<void()> task) override;
  bool Post(std::function<void()> task) override;
  TimerId At(int64_t steady_ns, std::function<void()> callback) override;
  void Cancel(TimerId id) override;

 private:
  void Run();
  bool RunTasks();
  bool FireTimers();
  // Waits for the source, a task or the next timer. REQUIRES: the source is armed.
  void Sleep();
  int WaitMs() const;
  // True when Stop was called and everything queued has run.
  bool EndIfAsked();
  bool Enqueue(std::function<void()> task, size_t limit);
  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;
  EventSource* const source_;
  const size_t max_queue_;
  const int64_t poll_ns_;
  int epoll_fd_ = -1;  // Start to the end of life
  int wake_fd_ = -1;   // the same

  Mutex mu_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  std::function<void()> last_ ABSL_GUARDED_BY(mu_);
  bool asleep_ ABSL_GUARDED_BY(mu_) = false;    // wake_fd_ must be written to, once
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;  // no new tasks
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;   // the thread takes no more

  // Of the loop's thread. By (time, id); ids_ finds the time of an id.
  std::map<std::pair<int64_t, TimerId>, std::function<void()>> due_;
  std::map<TimerId, int64_t> ids_;
  TimerId next_id_ = 1;

  std::thread thread_;  // Start and the one Stop that joins
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_UCX_PROGRESS_LOOP_H_
