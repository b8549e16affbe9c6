// What one node knows of one context, as it goes from node to node, and how two such are joined. Pure
// functions of values.
//
// A later life of the context replaces an earlier one; within a life every field is joined by itself, the
// later change wins. So it does not matter in which order and how often states arrive: Join is commutative
// and idempotent, and associative in all that readers can see of a live context. Why it is like that is
// proved in services/kv_store/model/records_model.h.
#ifndef EPIC_SERVICES_KV_STORE_CORE_REPLICA_STATE_H_
#define EPIC_SERVICES_KV_STORE_CORE_REPLICA_STATE_H_

#include <optional>

#include "common/storage/context_record.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

// REQUIRES, if both are there: the record counts.
struct ReplicaState {
  std::optional<ContextRecord> record;
  std::optional<Tombstone> tombstone;
  bool operator==(const ReplicaState&) const = default;
};

// Whether a record is not removed by a tombstone. One that has expired counts until a tombstone says so.
bool Counts(const ContextRecord& record, const Tombstone& tombstone);

// REQUIRES: both are of the same context.
ContextRecord Join(const ContextRecord& a, const ContextRecord& b);
Tombstone Join(const Tombstone& a, const Tombstone& b);
ReplicaState Join(const ReplicaState& a, const ReplicaState& b);

// The latest time in a state: those of later changes must be greater.
HybridTime LatestTime(const ReplicaState& state);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_REPLICA_STATE_H_
