// Events, inventories and explanations of a store node (core/node) in epic.v1. Pure.
#ifndef EPIC_SERVICES_KV_STORE_RPC_EVENT_CONVERT_H_
#define EPIC_SERVICES_KV_STORE_RPC_EVENT_CONVERT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "epic/v1/kv_store.pb.h"
#include "services/kv_store/core/node/event_source.h"
#include "services/kv_store/core/node/explanation.h"

namespace epic::kv_store {

EventCursor CursorOf(const v1::EventCursor& proto);
v1::EventPage ToProto(const EventPage& page);

// Errors: kInvalidRequest for what ToProto of a page did not give.
absl::StatusOr<InventoryPlace> PlaceOf(const std::string& bytes);
v1::InventoryPage ToProto(const InventoryPage& page);

v1::ExplainResponse ToProto(const Explanation& explanation, const ObjectVariant& variant,
                            uint64_t incarnation, int64_t now_unix_ms);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_EVENT_CONVERT_H_
