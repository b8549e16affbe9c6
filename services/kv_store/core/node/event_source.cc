#include "services/kv_store/core/node/event_source.h"

namespace epic::kv_store {

EventSource::EventSource(StoreCore* store, uint64_t incarnation, EventLog* log)
    : store_(store), incarnation_(incarnation), log_(log) {
  store_->SetObserver(this);
}

EventSource::~EventSource() { store_->SetObserver(nullptr); }

Event EventSource::EventOf(const TenantObjectKey& key, const ObjectTiers& now) const {
  Event event;
  event.kind = EventKind::kObject;
  event.tenant = key.context.tenant;
  event.id = key.context.id;
  event.variant = key.variant;
  event.in_memory = now.in_memory;
  event.on_disk = now.on_disk;
  event.layout = now.layout;
  if (now.in_memory) event.generation = {.incarnation = incarnation_, .counter = now.generation};
  return event;
}

Event EventSource::EventOf(const ContextKey& key, const ContextSummary& now) {
  Event event;
  event.kind = EventKind::kContext;
  event.tenant = key.tenant;
  event.id = key.id;
  event.context = now;
  return event;
}

void EventSource::ObjectChanged(const TenantObjectKey& key, const ObjectTiers& now) {
  log_->Append(EventOf(key, now));
}

void EventSource::ContextChanged(const ContextKey& key, const ContextSummary& now) {
  log_->Append(EventOf(key, now));
}

InventoryPage EventSource::Inventory(const InventoryPlace& from, size_t max) {
  InventoryPage page;
  page.next = from;
  if (from.incarnation != incarnation_) {
    page.begins = true;
    page.next = {.incarnation = incarnation_, .sequence = log_->End().sequence};
  }
  if (page.next.kind == EventKind::kContext) {
    for (const auto& [key, summary] : store_->ListSummaries(&page.next.place, max)) {
      page.items.push_back(EventOf(key, summary));
    }
    if (page.items.size() < max) {
      page.next.kind = EventKind::kObject;
      page.next.place = 0;
    }
  }
  if (page.next.kind == EventKind::kObject && page.items.size() < max) {
    const size_t room = max - page.items.size();
    const auto objects = store_->ListTiers(&page.next.place, room);
    for (const auto& [key, tiers] : objects) page.items.push_back(EventOf(key, tiers));
    page.done = objects.size() < room;
  }
  if (page.done) page.tail = {.incarnation = incarnation_, .sequence = page.next.sequence};
  return page;
}

}  // namespace epic::kv_store
