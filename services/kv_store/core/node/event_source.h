// Turns the changes that the tables of a store report into events of its node, and what they hold into
// inventories. Owned by the node; thread-safe.
//
// An inventory begins at the end of the log, then lists what there is, page by page, while changes go on. Any
// change that a page missed has an event behind that place of the log: so pages, then the events from there
// on, give the state of the node, whatever happened meanwhile.
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_EVENT_SOURCE_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_EVENT_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/kv_store/core/node/event_log.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/core/table_observer.h"

namespace epic::kv_store {

// Where an inventory goes on. All zero: it begins.
struct InventoryPlace {
  uint64_t incarnation = 0;
  uint64_t sequence = 0;  // where the log ended when it began
  EventKind kind = EventKind::kContext;
  uint32_t place = 0;
  bool operator==(const InventoryPlace&) const = default;
};

struct InventoryPage {
  // True: this page begins an inventory; what was gathered of another one is void. So it is for the first
  // page, and where the place was of another incarnation.
  bool begins = false;
  std::vector<Event> items;  // with sequence 0
  bool done = false;         // the last page: go on with events from `tail`
  EventCursor tail;
  InventoryPlace next;
};

class EventSource final : public TableObserver {
 public:
  // Is told of changes from now on. `store` and `log` outlive this.
  EventSource(StoreCore* store, uint64_t incarnation, EventLog* log);
  ~EventSource() override;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;

  // Up to `max` items. REQUIRES: max > 0.
  InventoryPage Inventory(const InventoryPlace& from, size_t max);

  void ObjectChanged(const TenantObjectKey& key, const ObjectTiers& now) override;
  void ContextChanged(const ContextKey& key, const ContextSummary& now) override;

 private:
  Event EventOf(const TenantObjectKey& key, const ObjectTiers& now) const;
  static Event EventOf(const ContextKey& key, const ContextSummary& now);

  StoreCore* const store_;
  const uint64_t incarnation_;
  EventLog* const log_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_EVENT_SOURCE_H_
