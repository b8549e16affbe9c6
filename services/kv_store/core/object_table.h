// Where the copies of every object are, in memory and on disk, in order of use; who is evicted next. Pure
// logic: the owner (store_core.h) moves the bytes. Thread-safe.
//
// What concerns the disk copies of a context (SetDisk, DropDisk, RemoveContext, Publish) happens under the
// owner's KeyLock of that context. Eviction from memory needs none: it takes only objects without a holder
// outside the table (no lease, no write pending), least recently used first: unpinned ones, then soft-pinned
// ones, then hard-pinned ones that have a copy on disk. A hard-pinned object without a copy on disk stays.
// Eviction from disk: unpinned ones, then soft-pinned ones; never hard-pinned ones. A pin past its deadline
// is none.
#ifndef EPIC_SERVICES_KV_STORE_CORE_OBJECT_TABLE_H_
#define EPIC_SERVICES_KV_STORE_CORE_OBJECT_TABLE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/host_object.h"
#include "services/kv_store/core/rows.h"

namespace epic::kv_store {

using ObjectPtr = std::shared_ptr<const HostObject>;

struct DiskCopy {
  uint64_t number = 0;
  uint64_t bytes = 0;
  KvLayout layout;
};

struct PinState {
  Pin pin = Pin::kNone;
  std::optional<int64_t> until_ms;
};

class ObjectTable {
 public:
  // `clock` outlives the table.
  explicit ObjectTable(const Clock* clock) : clock_(clock) {}

  void SetPin(const ContextKey& key, const PinState& pin) ABSL_LOCKS_EXCLUDED(mu_);

  struct Found {
    ObjectPtr object;
    std::optional<DiskCopy> disk;  // set: the caller reads this copy and owes FinishLoad
    MissCause cause = MissCause::kNeverStored;
  };
  // Marks a use. Waits while another thread loads the same object.
  Found Find(const TenantObjectKey& key, const KvLayout& layout) ABSL_LOCKS_EXCLUDED(mu_);
  // `object` is nullptr when the load failed. Publishes it if copy `number` is still the object's, and
  // returns what readers get from now on; nullptr: nothing.
  ObjectPtr FinishLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object)
      ABSL_LOCKS_EXCLUDED(mu_);

  struct Published {
    ObjectPtr object;     // what readers get from now on; another's if that was first with the same layout
    uint64_t ticket = 0;  // of this publication
    bool first = false;   // `object` is the one that was handed in, for the first time
    bool on_disk = false;
  };
  Published Publish(const TenantObjectKey& key, ObjectPtr object) ABSL_LOCKS_EXCLUDED(mu_);
  // Whether what was published under `ticket` is still what readers get, and is not on disk yet.
  bool NeedsWrite(const TenantObjectKey& key, uint64_t ticket) const ABSL_LOCKS_EXCLUDED(mu_);

  std::optional<DiskCopy> DiskCopyOf(const TenantObjectKey& key) const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<std::pair<TenantObjectKey, DiskCopy>> DiskCopiesOf(const ContextKey& key) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // The copy of what was published under `ticket`; at start, with ticket 0, for each copy that the disk
  // holds.
  void SetDisk(const TenantObjectKey& key, const DiskCopy& copy, uint64_t ticket) ABSL_LOCKS_EXCLUDED(mu_);
  void DropDisk(const TenantObjectKey& key, MissCause cause) ABSL_LOCKS_EXCLUDED(mu_);
  // Both copies; later lookups miss with `cause`.
  void Remove(const TenantObjectKey& key, MissCause cause) ABSL_LOCKS_EXCLUDED(mu_);
  void RemoveContext(const ContextKey& key) ABSL_LOCKS_EXCLUDED(mu_);

  // Lets go of at least `bytes` of buffers if it can. The caller destroys what is returned.
  std::vector<ObjectPtr> EvictFromMemory(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // Copies whose sizes add up to `bytes`, if there are enough; their owner drops them one by one.
  std::vector<TenantObjectKey> PickDiskVictims(uint64_t bytes) const ABSL_LOCKS_EXCLUDED(mu_);

  // Variants that exist in any tier and their bytes, for a record's answer.
  void Describe(ContextRecord* record) const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t disk_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  struct MemoryCounts {
    uint64_t objects = 0;  // in memory, findable
    uint64_t leased = 0;   // of these, with a holder outside the store
  };
  // `pending_writes`: objects that the writer holds.
  MemoryCounts Count(uint64_t pending_writes) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Entry {
    ObjectPtr memory;
    std::optional<DiskCopy> disk;
    uint64_t ticket = 0;       // of `memory`
    uint64_t disk_ticket = 0;  // of `disk`: equal when both are the same compile
    bool loading = false;
    std::list<TenantObjectKey>::iterator use;
  };
  // Also finds the first object of a context, whatever its variant.
  struct KeyOrder {
    using is_transparent = void;
    bool operator()(const TenantObjectKey& a, const TenantObjectKey& b) const { return a < b; }
    bool operator()(const TenantObjectKey& a, const ContextKey& b) const { return a.context < b; }
    bool operator()(const ContextKey& a, const TenantObjectKey& b) const { return a < b.context; }
  };
  using Entries = std::map<TenantObjectKey, Entry, KeyOrder>;

  Entry& Touch(const TenantObjectKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(Entries::iterator entry, MissCause cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ClearDisk(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Pin PinOf(const ContextKey& key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remember(const TenantObjectKey& key, MissCause cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;

  mutable Mutex mu_;
  CondVar loaded_;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  std::list<TenantObjectKey> uses_ ABSL_GUARDED_BY(mu_);  // least recent first
  std::map<ContextKey, PinState> pins_ ABSL_GUARDED_BY(mu_);
  // Why the last objects that went are gone; bounded.
  std::map<TenantObjectKey, MissCause> causes_ ABSL_GUARDED_BY(mu_);
  std::deque<TenantObjectKey> cause_order_ ABSL_GUARDED_BY(mu_);
  uint64_t disk_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_OBJECT_TABLE_H_
