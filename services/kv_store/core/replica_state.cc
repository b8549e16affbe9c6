#include "services/kv_store/core/replica_state.h"

#include <algorithm>
#include <tuple>

namespace epic::kv_store {
namespace {

// Whether b's value of a field replaces a's: it was set later or, where two nodes set it at the same time, is
// the greater one.
template <typename Value>
bool Replaces(const HybridTime& a_changed, const Value& a, const HybridTime& b_changed, const Value& b) {
  return std::tie(b_changed, b) > std::tie(a_changed, a);
}

auto ExpiryOf(const ContextRecord& record) {
  // nullopt, never, is the greatest.
  return std::make_tuple(!record.expires_at_ms.has_value(), record.expires_at_ms.value_or(0),
                         !record.ttl_seconds.has_value(), record.ttl_seconds.value_or(0));
}

auto PinOf(const ContextRecord& record) {
  return std::make_tuple(record.pin, !record.pin_until_ms.has_value(), record.pin_until_ms.value_or(0));
}

// What no change alters. Two nodes that began lives at the same time prefer the same one.
auto OriginOf(const ContextRecord& record) {
  return std::make_tuple(record.created_at_ms, record.model, record.durability, record.token_count);
}

auto ProgressOf(const ContextRecord& record) {
  // A compile that ended says more than one that runs, one that went well more than one that failed.
  const int rank = record.state == ContextState::kReady ? 2 : record.state == ContextState::kFailed ? 1 : 0;
  return std::make_tuple(rank, record.compile_ms, record.error);
}

}  // namespace

bool Counts(const ContextRecord& record, const Tombstone& tombstone) {
  return record.created > tombstone.deleted && std::tie(record.created, record.expiry_changed) >
                                                   std::tie(tombstone.expired_life, tombstone.expired);
}

ContextRecord Join(const ContextRecord& a, const ContextRecord& b) {
  if (a.created != b.created) return a.created > b.created ? a : b;
  ContextRecord joined = OriginOf(b) > OriginOf(a) ? b : a;
  joined.hidden = a.hidden && b.hidden;
  const ContextRecord& further = ProgressOf(b) > ProgressOf(a) ? b : a;
  joined.state = further.state;
  joined.compile_ms = further.compile_ms;
  joined.error = further.error;
  const ContextRecord& expiry =
      Replaces(a.expiry_changed, ExpiryOf(a), b.expiry_changed, ExpiryOf(b)) ? b : a;
  joined.ttl_seconds = expiry.ttl_seconds;
  joined.expires_at_ms = expiry.expires_at_ms;
  joined.expiry_changed = expiry.expiry_changed;
  const ContextRecord& pin = Replaces(a.pin_changed, PinOf(a), b.pin_changed, PinOf(b)) ? b : a;
  joined.pin = pin.pin;
  joined.pin_until_ms = pin.pin_until_ms;
  joined.pin_changed = pin.pin_changed;
  const ContextRecord& tags = Replaces(a.tags_changed, a.tags, b.tags_changed, b.tags) ? b : a;
  joined.tags = tags.tags;
  joined.tags_changed = tags.tags_changed;
  const ContextRecord& name = Replaces(a.name_changed, a.name, b.name_changed, b.name) ? b : a;
  joined.name = name.name;
  joined.name_changed = name.name_changed;
  joined.last_used_at_ms = std::max(a.last_used_at_ms, b.last_used_at_ms);
  joined.hits = std::max(a.hits, b.hits);
  return joined;
}

Tombstone Join(const Tombstone& a, const Tombstone& b) {
  const auto place = [](const Tombstone& tombstone) {
    return std::make_tuple(tombstone.at, tombstone.cause, tombstone.created_at_ms);
  };
  Tombstone joined = place(b) > place(a) ? b : a;
  joined.deleted = std::max(a.deleted, b.deleted);
  if (std::tie(b.expired_life, b.expired) > std::tie(a.expired_life, a.expired)) {
    joined.expired_life = b.expired_life;
    joined.expired = b.expired;
  } else {
    joined.expired_life = a.expired_life;
    joined.expired = a.expired;
  }
  return joined;
}

ReplicaState Join(const ReplicaState& a, const ReplicaState& b) {
  ReplicaState joined = a;
  if (b.record.has_value()) joined.record = a.record.has_value() ? Join(*a.record, *b.record) : b.record;
  if (b.tombstone.has_value()) {
    joined.tombstone = a.tombstone.has_value() ? Join(*a.tombstone, *b.tombstone) : b.tombstone;
  }
  if (joined.record.has_value() && joined.tombstone.has_value() &&
      !Counts(*joined.record, *joined.tombstone)) {
    joined.record.reset();
  }
  return joined;
}

HybridTime LatestTime(const ReplicaState& state) {
  HybridTime latest;
  if (state.record.has_value()) {
    const ContextRecord& record = *state.record;
    latest = std::max({record.created, record.expiry_changed, record.pin_changed, record.tags_changed,
                       record.name_changed});
  }
  if (state.tombstone.has_value()) {
    const Tombstone& tombstone = *state.tombstone;
    latest = std::max({latest, tombstone.at, tombstone.deleted, tombstone.expired_life, tombstone.expired});
  }
  return latest;
}

}  // namespace epic::kv_store
