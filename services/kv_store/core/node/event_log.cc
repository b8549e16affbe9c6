#include "services/kv_store/core/node/event_log.h"

#include <algorithm>
#include <utility>

namespace epic::kv_store {

void EventLog::Append(Event event) {
  MutexLock lock(&mu_);
  event.sequence = EndUnder();
  if (ring_.size() == capacity_) {
    ring_.pop_front();
    ++first_;
  }
  ring_.push_back(std::move(event));
}

EventCursor EventLog::End() const {
  MutexLock lock(&mu_);
  return {.incarnation = incarnation_, .sequence = EndUnder()};
}

EventPage EventLog::Read(const EventCursor& from, size_t max) {
  EventPage page;
  MutexLock lock(&mu_);
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

EventLog::Counts EventLog::counts() const {
  MutexLock lock(&mu_);
  return {.appended = EndUnder() - 1, .gaps = gaps_};
}

}  // namespace epic::kv_store
