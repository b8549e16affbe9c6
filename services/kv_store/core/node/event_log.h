// What changed on a node, in order: a bounded ring of events that subscribers read at their own pace, each
// with a cursor of its own. Thread-safe. Not here: who reports the changes (event_source.h).
//
// An event says the state that one object or context is in from then on, not what was done to it: applying it
// twice, or after a later inventory, changes nothing. Events of one key are in the order of its changes. A
// cursor that fell out of the ring, or is of another incarnation, gets a gap: what it knew may be wrong, and
// an inventory is due.
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_EVENT_LOG_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/node/node_types.h"
#include "services/kv_store/core/table_observer.h"

namespace epic::kv_store {

enum class EventKind : uint8_t { kObject, kContext };

struct Event {
  uint64_t sequence = 0;  // 0 in an inventory
  EventKind kind = EventKind::kObject;
  std::string tenant;
  CacheId id;

  // kObject. In neither tier: it is gone.
  ObjectVariant variant;
  bool in_memory = false;
  bool on_disk = false;
  KvLayout layout;
  Generation generation;  // of the copy in memory; none without one
  uint64_t bytes() const { return in_memory || on_disk ? layout.TotalBytes() : 0; }

  ContextSummary context;  // kContext

  bool operator==(const Event&) const = default;
};

// The next event to read. All zero: none yet, an inventory is due.
struct EventCursor {
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
  bool operator==(const EventCursor&) const = default;
};

struct EventPage {
  // True: events are missing between the cursor and `next`; begin an inventory, which says where to go on.
  bool gap = false;
  std::vector<Event> events;
  EventCursor next;
};

class EventLog {
 public:
  // REQUIRES: capacity > 0.
  EventLog(uint64_t incarnation, size_t capacity) : incarnation_(incarnation), capacity_(capacity) {}

  // Gives the event its sequence, from 1 on. Takes no other lock: callers may hold theirs.
  void Append(Event event) ABSL_LOCKS_EXCLUDED(mu_);

  // Behind the last event.
  EventCursor End() const ABSL_LOCKS_EXCLUDED(mu_);
  // Up to `max` events from the cursor on, in order; none where there is nothing new.
  EventPage Read(const EventCursor& from, size_t max) ABSL_LOCKS_EXCLUDED(mu_);

  struct Counts {
    uint64_t appended = 0;
    uint64_t gaps = 0;  // cursors that were told of one
  };
  Counts counts() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  uint64_t EndUnder() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return first_ + ring_.size(); }

  const uint64_t incarnation_;
  const size_t capacity_;

  mutable Mutex mu_;
  std::deque<Event> ring_ ABSL_GUARDED_BY(mu_);
  uint64_t first_ ABSL_GUARDED_BY(mu_) = 1;  // sequence of the oldest event in the ring
  uint64_t gaps_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_EVENT_LOG_H_
