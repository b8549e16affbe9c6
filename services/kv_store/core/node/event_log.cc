#include "services/kv_store/core/node/event_log.h"

#include <algorithm>
#include <utility>

namespace epic::kv_store {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;

}  // namespace

void EventLog::Append(Event event) {
  MutexLock lock(&mu_);
  event.sequence = EndUnder();
  if (ring_.size() == capacity_) {
    ring_.pop_front();
    ++first_;
  }
  ring_.push_back(std::move(event));
  appended_.SignalAll();
}

EventCursor EventLog::End() const {
  MutexLock lock(&mu_);
  return {.incarnation = incarnation_, .sequence = EndUnder()};
}

EventPage EventLog::Read(const EventCursor& from, size_t max, int64_t wait_ms) {
  EventPage page;
  MutexLock lock(&mu_);
  const int64_t deadline_ns = clock_->SteadyNs() + wait_ms * kNsPerMs;
  while (!stopped_ && from.incarnation == incarnation_ && from.sequence == EndUnder()) {
    const int64_t left_ns = deadline_ns - clock_->SteadyNs();
    if (left_ns <= 0) break;
    appended_.WaitForMs(&mu_, (left_ns + kNsPerMs - 1) / kNsPerMs);
  }
  page.gap = from.incarnation != incarnation_ || from.sequence < first_ || from.sequence > EndUnder();
  page.next = {.incarnation = incarnation_, .sequence = page.gap ? EndUnder() : from.sequence};
  if (page.gap) {
    ++gaps_;
    return page;
  }
  const size_t begin = from.sequence - first_;
  const size_t count = std::min(max, ring_.size() - begin);
  const auto first = ring_.begin() + static_cast<ptrdiff_t>(begin);
  page.events.assign(first, first + static_cast<ptrdiff_t>(count));
  page.next.sequence += count;
  return page;
}

void EventLog::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  appended_.SignalAll();
}

EventLog::Counts EventLog::counts() const {
  MutexLock lock(&mu_);
  return {.appended = EndUnder() - 1, .gaps = gaps_};
}

}  // namespace epic::kv_store
