#include "services/router/core/request_registry.h"

#include <utility>

#include "common/status/error.h"

namespace epic {

absl::StatusOr<RequestRegistry::Id> RequestRegistry::Add(const RequestScope& scope, std::string kind,
                                                         Interrupt interrupt) {
  MutexLock lock(&mu_);
  if (entries_.size() >= max_requests_) {
    return RetryLater(ErrorCode::kQueueFull, "too many requests are in progress: try again later", 1000);
  }
  const Id id = next_id_++;
  entries_[id] = {.scope = scope, .kind = std::move(kind), .interrupt = std::move(interrupt)};
  return id;
}

void RequestRegistry::SetPhase(Id id, std::string_view phase) {
  MutexLock lock(&mu_);
  if (const auto found = entries_.find(id); found != entries_.end()) found->second.phase = phase;
}

void RequestRegistry::Remove(Id id) {
  Interrupt dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  dropped = std::move(found->second.interrupt);
  entries_.erase(found);
  if (entries_.empty()) idle_.SignalAll();
}

bool RequestRegistry::WaitIdle(int64_t timeout_ms) {
  const int64_t end_ns = clock_->SteadyNs() + timeout_ms * 1'000'000;
  MutexLock lock(&mu_);
  while (!entries_.empty()) {
    const int64_t left_ms = (end_ns - clock_->SteadyNs()) / 1'000'000;
    if (left_ms <= 0) return false;
    idle_.WaitForMs(&mu_, left_ms);
  }
  return true;
}

void RequestRegistry::Start(Timers* timers, int64_t period_ms) {
  timers->At(clock_->SteadyNs() + period_ms * 1'000'000, [this, timers, period_ms] {
    Tick();
    Start(timers, period_ms);
  });
}

void RequestRegistry::Tick() {
  const int64_t now_ns = clock_->SteadyNs();
  std::vector<std::pair<Interrupt, absl::Status>> due;
  {
    MutexLock lock(&mu_);
    for (auto& [id, entry] : entries_) {
      if (entry.interrupted) continue;
      const int64_t deadline_ns = entry.scope.deadline_steady_ns;
      if (entry.scope.cancel.cancelled()) {
        due.emplace_back(entry.interrupt, Error(ErrorCode::kClientGone, "the client is gone"));
      } else if (deadline_ns > 0 && deadline_ns <= now_ns) {
        due.emplace_back(entry.interrupt,
                         Error(ErrorCode::kDeadline, "the request took longer than its deadline allows"));
      } else {
        continue;
      }
      entry.interrupted = true;
    }
  }
  for (const auto& [interrupt, why] : due) interrupt(why);
}

void RequestRegistry::InterruptAll(const absl::Status& why) {
  std::vector<Interrupt> due;
  {
    MutexLock lock(&mu_);
    for (auto& [id, entry] : entries_) {
      if (!std::exchange(entry.interrupted, true)) due.push_back(entry.interrupt);
    }
  }
  for (const Interrupt& interrupt : due) interrupt(why);
}

size_t RequestRegistry::size() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

std::vector<InFlightRequest> RequestRegistry::List() const {
  const int64_t now_ns = clock_->SteadyNs();
  std::vector<InFlightRequest> list;
  MutexLock lock(&mu_);
  for (const auto& [id, entry] : entries_) {
    list.push_back({.request_id = entry.scope.request_id,
                    .kind = entry.kind,
                    .phase = entry.phase,
                    .age_ms = (now_ns - entry.scope.received_steady_ns) / 1'000'000});
  }
  return list;
}

}  // namespace epic
