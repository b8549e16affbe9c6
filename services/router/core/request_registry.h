// The requests in progress: listed for /debug/requests, interrupted when their client is gone or their
// deadline is over, counted for draining.
//
// Cancel tokens are flags that cannot call back, so Tick looks at all of them; Start has it run by a timer.
// Thread-safe. Interrupts are called outside the lock, at most once a request, and must not block.
#ifndef EPIC_SERVICES_ROUTER_CORE_REQUEST_REGISTRY_H_
#define EPIC_SERVICES_ROUTER_CORE_REQUEST_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "services/router/core/api.h"

namespace epic {

class RequestRegistry {
 public:
  using Id = uint64_t;
  // kClientGone or kDeadline, or what InterruptAll says.
  using Interrupt = std::function<void(const absl::Status& why)>;

  RequestRegistry(size_t max_requests, const Clock* clock) : max_requests_(max_requests), clock_(clock) {}

  // Errors: kQueueFull when too many requests are in progress.
  absl::StatusOr<Id> Add(const RequestScope& scope, std::string kind, Interrupt interrupt);
  void SetPhase(Id id, std::string_view phase);
  void Remove(Id id);

  // Has Tick called by `timers` from now on, every `period_ms`. The timers must stop before the registry
  // goes.
  void Start(Timers* timers, int64_t period_ms);
  void Tick();
  void InterruptAll(const absl::Status& why);

  // Waits until no request is in progress, at most `timeout_ms`. False when some are left.
  bool WaitIdle(int64_t timeout_ms);

  size_t size() const;
  std::vector<InFlightRequest> List() const;

 private:
  struct Entry {
    RequestScope scope;
    std::string kind;
    std::string phase = "queued";
    Interrupt interrupt;
    bool interrupted = false;
  };

  const size_t max_requests_;
  const Clock* const clock_;
  mutable Mutex mu_;
  CondVar idle_;
  std::map<Id, Entry> entries_ ABSL_GUARDED_BY(mu_);
  Id next_id_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_REQUEST_REGISTRY_H_
