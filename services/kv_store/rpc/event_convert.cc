#include "services/kv_store/rpc/event_convert.h"

#include "common/base/bytes.h"
#include "common/rpc/kv_store/object_convert.h"
#include "common/rpc/kv_store/record_convert.h"
#include "common/status/error.h"

namespace epic::kv_store {
namespace {

constexpr size_t kPlaceBytes = 2 * sizeof(uint64_t) + 2 * sizeof(uint32_t);

v1::ContextLife ToProto(ContextLife life) {
  switch (life) {
    case ContextLife::kLive:
      return v1::CONTEXT_LIFE_LIVE;
    case ContextLife::kDeleted:
      return v1::CONTEXT_LIFE_DELETED;
    case ContextLife::kExpired:
      return v1::CONTEXT_LIFE_EXPIRED;
    case ContextLife::kUnknown:
      return v1::CONTEXT_LIFE_UNKNOWN;
  }
  return v1::CONTEXT_LIFE_UNSPECIFIED;
}

void Set(const ContextSummary& context, v1::ContextSummary* proto) {
  proto->set_life(ToProto(context.life));
  if (context.life != ContextLife::kLive) return;
  proto->set_state(epic::ToProto(context.state));
  proto->set_model_identity(epic::ToProto(context.model_identity));
  proto->set_hidden(context.hidden);
  proto->set_token_count(context.token_count);
  if (context.expires_at_ms.has_value()) proto->set_expires_unix_ms(*context.expires_at_ms);
}

void Set(const Generation& generation, v1::Generation* proto) {
  proto->set_incarnation(generation.incarnation);
  proto->set_counter(generation.counter);
}

void Set(const Event& event, v1::StoreEvent* proto) {
  proto->set_sequence(event.sequence);
  proto->set_tenant(event.tenant);
  AppendCacheId(event.id, proto->mutable_id());
  if (event.kind == EventKind::kContext) return Set(event.context, proto->mutable_context());
  v1::ObjectPlace* object = proto->mutable_object();
  *object->mutable_variant() = epic::ToProto(event.variant);
  object->set_in_memory(event.in_memory);
  object->set_on_disk(event.on_disk);
  if (event.in_memory || event.on_disk) *object->mutable_layout() = epic::ToProto(event.layout);
  if (event.in_memory) Set(event.generation, object->mutable_generation());
}

void Set(const EventCursor& cursor, v1::EventCursor* proto) {
  proto->set_incarnation(cursor.incarnation);
  proto->set_sequence(cursor.sequence);
}

}  // namespace

EventCursor CursorOf(const v1::EventCursor& proto) { return {proto.incarnation(), proto.sequence()}; }

v1::EventPage ToProto(const EventPage& page) {
  v1::EventPage proto;
  proto.set_gap(page.gap);
  for (const Event& event : page.events) Set(event, proto.add_events());
  Set(page.next, proto.mutable_next());
  return proto;
}

absl::StatusOr<InventoryPlace> PlaceOf(const std::string& bytes) {
  if (bytes.empty()) return InventoryPlace();
  const ByteSpan at = AsBytes(bytes);
  if (bytes.size() != kPlaceBytes || LoadLittle<uint32_t>(at, 16) > 1) {
    return Error(ErrorCode::kInvalidRequest, "a place is what the page before said", "place");
  }
  return InventoryPlace{.incarnation = LoadLittle<uint64_t>(at),
                        .sequence = LoadLittle<uint64_t>(at, 8),
                        .kind = static_cast<EventKind>(LoadLittle<uint32_t>(at, 16)),
                        .place = LoadLittle<uint32_t>(at, 20)};
}

v1::InventoryPage ToProto(const InventoryPage& page) {
  v1::InventoryPage proto;
  proto.set_begins(page.begins);
  for (const Event& event : page.items) Set(event, proto.add_items());
  if (page.done) {
    Set(page.tail, proto.mutable_tail());
    return proto;
  }
  std::string* place = proto.mutable_place();
  AppendLittle<uint64_t>(place, page.next.incarnation);
  AppendLittle<uint64_t>(place, page.next.sequence);
  AppendLittle<uint32_t>(place, static_cast<uint32_t>(page.next.kind));
  AppendLittle<uint32_t>(place, page.next.place);
  return proto;
}

v1::ExplainResponse ToProto(const Explanation& explanation, const ObjectVariant& variant,
                            uint64_t incarnation, int64_t now_unix_ms) {
  v1::ExplainResponse proto;
  proto.set_verdict(std::string(NameOf(explanation.verdict)));
  proto.set_sentence(SentenceOf(explanation, now_unix_ms));
  Set(explanation.context, proto.mutable_context());
  const ObjectTiers& tiers = explanation.tiers;
  v1::ObjectPlace* object = proto.mutable_object();
  *object->mutable_variant() = epic::ToProto(variant);
  object->set_in_memory(tiers.in_memory);
  object->set_on_disk(tiers.on_disk);
  if (tiers.any()) *object->mutable_layout() = epic::ToProto(tiers.layout);
  if (tiers.in_memory) Set(Generation{incarnation, tiers.generation}, object->mutable_generation());
  proto.set_held(explanation.held);
  proto.set_leases(explanation.leases);
  if (explanation.gone_at_ms.has_value()) proto.set_gone_unix_ms(*explanation.gone_at_ms);
  if (explanation.writing.has_value()) {
    proto.set_writer(explanation.writing->source);
    proto.set_writing_ms(explanation.writing->age_ms);
  }
  return proto;
}

}  // namespace epic::kv_store
