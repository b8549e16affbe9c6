// Where the copies of every object are, in memory and on disk, and who is evicted next. Pure logic: the owner
// (store_core.h) moves the bytes. Thread-safe.
//
// Lookups share the lock (common/base/shared_mutex.h). The uses that they count are written down beside it,
// by CPU, and told to the orders of eviction before the next change, so that every change sees all of them.
// With LRU, where the order of uses matters, a lookup is a change.
//
// What concerns the disk copies of a context (SetDisk, DropDisk, RemoveContext, Publish) happens under the
// owner's KeyLock of that context. Eviction from memory needs none: it takes only objects without a holder
// outside the table (no lease, no write pending). The order of eviction, quotas and pins are told in
// eviction/tier_eviction.h; there is one for memory and one for disk, and a use counts in both. A hard-pinned
// object leaves memory only while it has a copy on disk, and never leaves the disk.
#ifndef EPIC_SERVICES_KV_STORE_CORE_OBJECT_TABLE_H_
#define EPIC_SERVICES_KV_STORE_CORE_OBJECT_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/shared_mutex.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/eviction/frequency_sketch.h"
#include "services/kv_store/core/eviction/tier_eviction.h"
#include "services/kv_store/core/host_object.h"
#include "services/kv_store/core/huge_pages.h"
#include "services/kv_store/core/indexed_pool.h"
#include "services/kv_store/core/intern_pool.h"
#include "services/kv_store/core/packed_key.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/core/table_observer.h"

namespace epic::kv_store {

using ObjectPtr = std::shared_ptr<const HostObject>;

struct DiskCopy {
  uint64_t number = 0;
  uint64_t bytes = 0;
  KvLayout layout;
};

// What the objects of one tenant may take; 0: as much as there is.
struct TenantQuota {
  uint64_t memory_bytes = 0;
  uint64_t disk_bytes = 0;
};

inline PinState PinStateOf(const ContextRecord& record) {
  return {.pin = record.pin, .until_ms = record.pin_until_ms};
}

struct ObjectTableOptions {
  EvictionKind eviction = EvictionKind::kS3Fifo;
  std::map<std::string, TenantQuota> quotas;  // by tenant
};

// How an object stands: what keeps it, or why it is not there.
struct ObjectStanding {
  std::optional<EvictionStanding> memory;
  std::optional<EvictionStanding> disk;
  bool held = false;                          // leased, or being written: not evicted from memory
  MissCause cause = MissCause::kNeverStored;  // where it is in neither
  std::optional<int64_t> gone_at_ms;          // the same: when the last copy went, if that is remembered
};

class ObjectTable {
 public:
  // `clock` outlives the table.
  explicit ObjectTable(const Clock* clock, const ObjectTableOptions& options = {});

  // Told from now on of every change of an object's tiers; nullptr: nobody is.
  void SetObserver(TableObserver* observer) ABSL_LOCKS_EXCLUDED(mu_);

  // Of the objects of a context that are there. Those that come later are without a pin until this is called.
  void SetPin(const ContextKey& key, const PinState& pin) ABSL_LOCKS_EXCLUDED(mu_);

  struct Found {
    ObjectPtr object;
    std::optional<DiskCopy> disk;  // set: the caller reads this copy and owes FinishLoad
    MissCause cause = MissCause::kNeverStored;
  };
  enum class Want { kWhole, kStreaming };
  // Counts a use. Waits while another thread loads the same object, unless that is late: then it is a miss;
  // with kStreaming until that has shared it.
  Found Find(const ContextRef& context, const ObjectVariant& variant, const KvLayout& layout,
             Want want = Want::kWhole) ABSL_LOCKS_EXCLUDED(mu_);
  // Readers that want it streaming get `object`, whose layers may be still to come, while it is loaded from
  // copy `number`: until FinishLoad, and until then the caller holds it.
  void ShareLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The copy of an object that is on disk alone and that nobody loads: the caller reads it and owes
  // FinishLoad. Counts no use.
  std::optional<DiskCopy> BeginLoad(const TenantObjectKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // `object` is nullptr when the load failed. Publishes it if copy `number` is still the object's, and
  // returns what readers get from now on; nullptr: nothing.
  ObjectPtr FinishLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Whoever loads copy `number` waits no longer for it; FinishLoad comes later. Until then readers do not
  // wait for it either.
  void LoadIsLate(const TenantObjectKey& key, uint64_t number) ABSL_LOCKS_EXCLUDED(mu_);

  // What readers get from memory now, or nullptr. Marks no use, and waits for no load.
  ObjectPtr InMemory(const TenantObjectKey& key) const ABSL_LOCKS_EXCLUDED(mu_);

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
  // The first copy on disk at or behind a place, which moves behind it; nullopt: no more. Begin with 0. What
  // comes and goes meanwhile may be left out.
  std::optional<std::pair<TenantObjectKey, DiskCopy>> NextOnDisk(uint32_t* place) const
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
  // The same until no tenant is over its quota.
  std::vector<ObjectPtr> EvictOverQuota() ABSL_LOCKS_EXCLUDED(mu_);
  // The copy on disk that goes next, or that must go for its tenant's quota; its owner drops it. nullopt:
  // none may go, or no tenant is over its quota.
  std::optional<std::pair<TenantObjectKey, DiskCopy>> PickDiskVictim() ABSL_LOCKS_EXCLUDED(mu_);
  std::optional<std::pair<TenantObjectKey, DiskCopy>> PickDiskVictimOverQuota() ABSL_LOCKS_EXCLUDED(mu_);
  // Whether an object that is not on disk deserves the place of what would have to go for it: it is pinned,
  // or was asked for at least as often lately.
  bool IsWorthDisk(const TenantObjectKey& key) ABSL_LOCKS_EXCLUDED(mu_);

  ObjectStanding Explain(const TenantObjectKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Who would leave memory, in order, until `bytes` are free. Copies the order of all: for people.
  std::vector<std::pair<TenantObjectKey, EvictionStanding>> PreviewEviction(uint64_t bytes)
      ABSL_LOCKS_EXCLUDED(mu_);

  // Where there are copies. Counts no use.
  ObjectTiers Tiers(const ContextRef& context, const ObjectVariant& variant) const ABSL_LOCKS_EXCLUDED(mu_);
  // Up to `max` objects from a place on, which moves behind them; fewer: no more. Begin with 0. An object
  // that is there from the first call to the last comes once; what comes and goes meanwhile may be left out.
  std::vector<std::pair<TenantObjectKey, ObjectTiers>> ListTiers(uint32_t* place, size_t max) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Whether there is a copy in any tier. Counts no use.
  bool Contains(const ContextRef& context, const ObjectVariant& variant) const ABSL_LOCKS_EXCLUDED(mu_);
  // Variants that exist in any tier and their bytes, for a record's answer.
  void Describe(ContextRecord* record) const ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t disk_bytes() const ABSL_LOCKS_EXCLUDED(mu_);
  struct MemoryCounts {
    uint64_t objects = 0;  // in memory, findable
    uint64_t leased = 0;   // of these, with a holder outside the store
  };
  // `pending_writes`: objects that the writer holds.
  MemoryCounts Count(uint64_t pending_writes) const ABSL_LOCKS_EXCLUDED(mu_);

  // Of the table itself: entries, indices, both orders of eviction; not the objects.
  uint64_t memory_bytes() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr uint32_t kNone = IndexedPool<int>::kNone;
  struct Entry {
    PackedContext context;
    uint32_t variant = kNone;
    uint32_t next = kNone;  // another object of the same context
    ObjectPtr memory;
    EntrySlot memory_slot = kNoEntry;
    EntrySlot disk_slot = kNoEntry;
    uint32_t disk_layout = kNone;  // kNone: no copy on disk
    bool loading = false;
    bool late = false;            // loading, and nobody waits for that any more
    bool disk_is_memory = false;  // both copies are of the same compile
    uint64_t disk_number = 0;
    uint64_t ticket = 0;  // of `memory`

    bool on_disk() const { return disk_layout != kNone; }
  };
  using Entries = IndexedPool<Entry>;
  // A use that the orders of eviction have not heard of yet.
  struct UseNote {
    uint64_t fingerprint = 0;
    int64_t at_ms = 0;
    EntrySlot memory_slot = kNoEntry;
    EntrySlot disk_slot = kNoEntry;
  };
  struct alignas(128) UseNotes {
    static constexpr uint32_t kMost = 64;
    uint32_t count = 0;
    std::array<UseNote, kMost> notes;
  };
  // For changes: hears what was used before.
  class ABSL_SCOPED_LOCKABLE ChangeLock {
   public:
    explicit ChangeLock(ObjectTable* table) ABSL_EXCLUSIVE_LOCK_FUNCTION(table->mu_) : table_(table) {
      table_->mu_.Lock();
      table_->TellAllUses();
    }
    ~ChangeLock() ABSL_UNLOCK_FUNCTION() { table_->mu_.Unlock(); }
    ChangeLock(const ChangeLock&) = delete;
    ChangeLock& operator=(const ChangeLock&) = delete;

   private:
    ObjectTable* const table_;
  };
  // The first entry of each context, found by the context.
  struct ContextHash {
    using is_transparent = void;
    const Entries* entries;
    size_t operator()(const PackedContext& context) const { return absl::Hash<PackedContext>()(context); }
    size_t operator()(uint32_t index) const { return (*this)((*entries)[index].context); }
  };
  struct ContextEqual {
    using is_transparent = void;
    const Entries* entries;
    bool operator()(uint32_t a, uint32_t b) const { return a == b || (*this)(a, (*entries)[b].context); }
    bool operator()(uint32_t a, const PackedContext& b) const { return (*entries)[a].context == b; }
    bool operator()(const PackedContext& a, uint32_t b) const { return (*this)(b, a); }
  };

  uint32_t FirstOf(const ContextRef& context) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  uint32_t FindEntry(const ContextRef& context, const ObjectVariant& variant) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  uint32_t FindEntry(const TenantObjectKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return FindEntry(RefOf(key.context), key.variant);
  }
  // The entry of a key, a new one if there is none.
  uint32_t Obtain(const TenantObjectKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  TenantObjectKey KeyOf(const Entry& entry) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Of a key, the same in every table.
  static uint64_t FingerprintOf(const PackedId& id, const ObjectVariant& variant);
  uint64_t FingerprintOf(const Entry& entry) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  DiskCopy CopyOf(const Entry& entry) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  PinState PinOf(const Entry& entry) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // What a lookup that ends at `index` (kNone: nowhere) answers, but for the copy on disk that is to be read.
  Found Answer(uint32_t index, uint64_t fingerprint, const KvLayout& layout) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // REQUIRES: uses_mu_ is held, or mu_ by a change.
  void Use(const UseNote& use) ABSL_SHARED_LOCKS_REQUIRED(mu_);
  UseNote UseOf(uint32_t index, uint64_t fingerprint) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // REQUIRES: the caller has that slot of mu_.
  void Note(size_t slot, const UseNote& use) ABSL_SHARED_LOCKS_REQUIRED(mu_) ABSL_LOCKS_EXCLUDED(uses_mu_);
  // REQUIRES: as Use, and as Note.
  void TellUses(UseNotes* notes) ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void TellAllUses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  enum class Leaving { kEvicted, kOtherwise };
  void SetMemory(uint32_t index, ObjectPtr object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ObjectPtr ClearMemory(Entry* entry, Leaving leaving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ClearDisk(Entry* entry, Leaving leaving) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ObjectTiers TiersOf(uint32_t index) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Tells the observer where the object is now.
  void Tell(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Nobody loads it any more.
  void EndLoading(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // REQUIRES: the entry has no copy in memory any more.
  void Erase(uint32_t index, MissCause cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayLeaveMemory(const EvictionEntry& place) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  bool MayLeaveDisk(const EvictionEntry& place) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  std::vector<ObjectPtr> Evict(uint64_t bytes, bool only_over_quota) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<std::pair<TenantObjectKey, DiskCopy>> PickOnDisk(bool only_over_quota)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Remember(uint64_t fingerprint, MissCause cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;
  const bool uses_commute_;  // whether the order of uses is nothing to the order of eviction

  mutable SharedMutex mu_;
  // By slot of mu_; each is of whoever has that slot.
  std::vector<UseNotes> uses_;
  // For lookups that tell the orders of eviction of their uses while others look something up.
  Mutex uses_mu_ ABSL_ACQUIRED_AFTER(mu_);
  SharedCondVar loaded_;
  TableObserver* observer_ ABSL_GUARDED_BY(mu_) = nullptr;
  Entries entries_ ABSL_GUARDED_BY(mu_);
  // Objects that are loaded just now and shared, by entry: in no order of eviction, and no copies in memory
  // until they are whole.
  absl::flat_hash_map<uint32_t, ObjectPtr> shared_loads_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uint32_t, ContextHash, ContextEqual, HugeAllocator<uint32_t>> contexts_
      ABSL_GUARDED_BY(mu_);
  InternPool<std::string> tenants_ ABSL_GUARDED_BY(mu_);
  InternPool<ObjectVariant> variants_ ABSL_GUARDED_BY(mu_);
  InternPool<KvLayout> layouts_ ABSL_GUARDED_BY(mu_);
  TierEviction memory_ ABSL_GUARDED_BY(mu_);
  TierEviction disk_ ABSL_GUARDED_BY(mu_);
  FrequencySketch frequencies_ ABSL_GUARDED_BY(mu_);
  struct Departure {
    MissCause cause = MissCause::kNeverStored;
    int64_t at_ms = 0;  // Unix time
  };
  // Why the last objects that went are gone, by fingerprint; bounded.
  absl::flat_hash_map<uint64_t, Departure> causes_ ABSL_GUARDED_BY(mu_);
  std::deque<uint64_t> cause_order_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_OBJECT_TABLE_H_
