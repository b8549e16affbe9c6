// Cuts a stream off whose other end stops: neither bytes nor an end come for a while. Owned by the stream;
// thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_RPC_STALL_GUARD_H_
#define EPIC_SERVICES_KV_STORE_RPC_STALL_GUARD_H_

#include <grpcpp/server_context.h>

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"

namespace epic::kv_store {

class StallGuard {
 public:
  // `timers` and `clock` outlive the guard, `context` lives until Disarm.
  StallGuard(Timers* timers, const Clock* clock, int64_t stall_ms, grpc::CallbackServerContext* context)
      : timers_(timers), clock_(clock), stall_ms_(stall_ms), line_(std::make_shared<Line>()) {
    MutexLock lock(&line_->mu);
    line_->context = context;
  }
  ~StallGuard() { Disarm(); }

  // Waiting for the other end begins: it has `stall_ms` from now.
  void Wait() {
    timers_->Cancel(timer_);
    timer_ = timers_->At(clock_->SteadyNs() + stall_ms_ * 1'000'000, [line = line_] {
      MutexLock lock(&line->mu);
      if (line->context != nullptr) line->context->TryCancel();
    });
  }
  // It is our turn.
  void Rest() { timers_->Cancel(timer_); }
  void Disarm() {
    timers_->Cancel(timer_);
    MutexLock lock(&line_->mu);
    line_->context = nullptr;
  }

 private:
  struct Line {
    Mutex mu;
    grpc::CallbackServerContext* context ABSL_GUARDED_BY(mu) = nullptr;
  };

  Timers* const timers_;
  const Clock* const clock_;
  const int64_t stall_ms_;
  const std::shared_ptr<Line> line_;
  TimerId timer_ = 0;  // whoever's turn it is in the stream
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_STALL_GUARD_H_
