// Told of every change of where an object is and of what becomes of a context. ObjectTable and RecordTable
// call it under their locks, so that the changes of one key come in their order: an observer must be quick,
// and call nothing of the store. Thread-safe: each table calls from any thread.
#ifndef EPIC_SERVICES_KV_STORE_CORE_TABLE_OBSERVER_H_
#define EPIC_SERVICES_KV_STORE_CORE_TABLE_OBSERVER_H_

#include <cstdint>
#include <optional>

#include "common/storage/kv_store.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

// Where an object is; in neither tier: nowhere.
struct ObjectTiers {
  bool in_memory = false;
  bool on_disk = false;
  uint64_t generation = 0;  // of its region in the arena (arena.h); 0 where it is not in memory
  KvLayout layout;          // of the copy in memory, else of that on disk
  bool any() const { return in_memory || on_disk; }
  bool operator==(const ObjectTiers&) const = default;
};

enum class ContextLife : uint8_t {
  kLive,
  kDeleted,
  kExpired,
  kUnknown,  // never created, or gone so long that its tombstone is forgotten
};

// What a context has become; all but `life` is of a live one.
struct ContextSummary {
  ContextLife life = ContextLife::kUnknown;
  ContextState state = ContextState::kCompiling;
  Digest model_identity;
  bool hidden = false;
  uint32_t token_count = 0;
  std::optional<int64_t> expires_at_ms;  // it reads as expired from then on, whether that was told or not
  bool operator==(const ContextSummary&) const = default;
};

class TableObserver {
 public:
  virtual ~TableObserver() = default;
  virtual void ObjectChanged(const TenantObjectKey& key, const ObjectTiers& now) = 0;
  virtual void ContextChanged(const ContextKey& key, const ContextSummary& now) = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_TABLE_OBSERVER_H_
