// Every context record in memory: the rules of create, change, expiry and removal, names, order and pages.
// Pure logic: it plans a change, its owner (store_core.h) writes the plan to disk and then applies it.
//
// Thread-safe. Plans and applications of one context are serialised by the owner's KeyLock; reads see the
// state of before until a plan is applied.
//
// Rules. A second create of the same context: the expiry becomes the later one (no ttl = never), the stronger
// pin wins (hard > soft > none; of equal ones the later deadline; a pin past its deadline counts as none),
// tags are united, the name is set only if empty, a hidden context that is created visibly becomes visible.
// `ttl` counts from the create call, from now when patched. A name belongs to one context per tenant and
// model identity. Hybrid times grow with every change, so a re-create outranks the tombstone before it.
// What other nodes know of a context is joined with what is known here (replica_state.h).
#ifndef EPIC_SERVICES_KV_STORE_CORE_RECORD_TABLE_H_
#define EPIC_SERVICES_KV_STORE_CORE_RECORD_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/shared_mutex.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/huge_pages.h"
#include "services/kv_store/core/packed_record.h"
#include "services/kv_store/core/replica_state.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/core/table_observer.h"

namespace epic::kv_store {

inline constexpr int64_t kTombstoneLifeMs = int64_t{7} * 24 * 3600 * 1000;

struct RecordPlan {
  ContextRecord record;
  bool created = false;   // no such context before
  bool replaces = false;  // created over one that has expired and is still on disk
  bool changed = false;   // something to write
};

class RecordTable {
 public:
  // `clock` outlives the table.
  explicit RecordTable(const Clock* clock);

  // Told from now on of every context that is created, changed or gone; nullptr: nobody is.
  void SetObserver(TableObserver* observer) ABSL_LOCKS_EXCLUDED(mu_);

  // At start, in any order. Where a record and a tombstone of one key meet, the later change wins.
  void Load(const ContextRecord& record) ABSL_LOCKS_EXCLUDED(mu_);
  void Load(const ContextKey& key, const Tombstone& tombstone) ABSL_LOCKS_EXCLUDED(mu_);

  // Errors: NotFound with kContextNotFound, kContextExpired or kContextDeleted.
  absl::StatusOr<ContextRecord> Get(const ContextKey& key) const ABSL_LOCKS_EXCLUDED(mu_);
  // What a reader of objects asks: whether a context is live, and under which model. Cheap.
  enum class Life { kLive, kGone, kNever };
  struct Sight {
    Life life = Life::kNever;
    Digest model_identity;  // of a live one
  };
  Sight Look(const ContextRef& context) const ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<ContextRecord> FindByName(std::string_view tenant, const Digest& model_identity,
                                           std::string_view name) const ABSL_LOCKS_EXCLUDED(mu_);
  // Hidden and expired records are left out. A removed context keeps its place for `after` as long as its
  // tombstone lives. Errors: InvalidArgument when the limit is not 1..1000; NotFound (kContextNotFound) when
  // `after` has no place.
  absl::StatusOr<ContextPage> List(std::string_view tenant, const ContextQuery& query) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // A plan reserves the name that it sets until Apply or Abandon.
  // Errors: FailedPrecondition (kNameInUse), InvalidArgument (a field over its limit).
  absl::StatusOr<RecordPlan> PlanCreate(const ContextKey& key, const NewContext& context)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Errors: as Get and PlanCreate.
  absl::StatusOr<RecordPlan> PlanUpdate(const ContextKey& key, const ContextPatch& patch)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<RecordPlan> PlanState(const ContextKey& key, ContextState state, int64_t compile_ms,
                                       std::string_view error) const ABSL_LOCKS_EXCLUDED(mu_);
  void Apply(const RecordPlan& plan) ABSL_LOCKS_EXCLUDED(mu_);
  void Abandon(const RecordPlan& plan) ABSL_LOCKS_EXCLUDED(mu_);

  // The tombstone with which to remove a context; nullopt when there is nothing to remove, or, for kExpired,
  // when it is not due.
  std::optional<Tombstone> PlanRemoval(const ContextKey& key, RemovalCause cause) ABSL_LOCKS_EXCLUDED(mu_);
  void ApplyRemoval(const ContextKey& key, const Tombstone& tombstone) ABSL_LOCKS_EXCLUDED(mu_);

  // What is known of a context, expired records included; nullopt: nothing.
  std::optional<ReplicaState> StateOf(const ContextKey& key) const ABSL_LOCKS_EXCLUDED(mu_);
  // Joined with `state`; nullopt when that brings nothing new. The owner writes it, then applies it.
  std::optional<ReplicaState> PlanJoin(const ContextKey& key, const ReplicaState& state)
      ABSL_LOCKS_EXCLUDED(mu_);
  void ApplyJoin(const ContextKey& key, const ReplicaState& joined) ABSL_LOCKS_EXCLUDED(mu_);

  // A time later than `seen` and than any before.
  HybridTime Tick(const HybridTime& seen) ABSL_LOCKS_EXCLUDED(mu_);

  // Up to `limit` contexts past their expiry; tombstones written before a time.
  std::vector<ContextKey> Expired(size_t limit) const ABSL_LOCKS_EXCLUDED(mu_);
  std::vector<ContextKey> TombstonesBefore(const HybridTime& time, size_t limit) const
      ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetTombstone(const ContextKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  bool HasTombstone(const ContextKey& key) const ABSL_LOCKS_EXCLUDED(mu_);

  // What has become of a context.
  ContextSummary SummaryOf(const ContextKey& key) const ABSL_LOCKS_EXCLUDED(mu_);
  // Up to `max` contexts that have a record, hidden and expired ones included, from a place on, which moves
  // behind them; fewer: no more. Begin with 0. Those that do not change from the first call to the last come
  // once; what changes meanwhile may be left out.
  std::vector<std::pair<ContextKey, ContextSummary>> ListSummaries(uint32_t* place, size_t max) const
      ABSL_LOCKS_EXCLUDED(mu_);

  void Touch(const ContextKey& key) ABSL_LOCKS_EXCLUDED(mu_);
  // Contexts touched since the last call.
  std::vector<ContextKey> TakeTouched() ABSL_LOCKS_EXCLUDED(mu_);
  // Live contexts that are not hidden.
  uint64_t VisibleCount() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  static constexpr uint32_t kNone = RecordPacker::kNone;
  using Records = IndexedPool<PackedRecord>;
  using NameKey = std::tuple<std::string, Digest, std::string>;  // tenant, model identity, name
  struct Place {                                                 // in lists
    uint32_t tenant = 0;
    int64_t created_at_ms = 0;
    PackedId id;
    auto operator<=>(const Place&) const = default;
  };

  // Indices hold numbers of records, and find them by what the records say.
  static Place PlaceOf(const PackedRecord& record) {
    return {record.key.tenant, record.created_at_ms, record.key.id};
  }
  struct KeyHash {
    using is_transparent = void;
    const Records* records;
    size_t operator()(const PackedContext& key) const { return absl::Hash<PackedContext>()(key); }
    size_t operator()(uint32_t index) const { return (*this)((*records)[index].key); }
  };
  struct KeyEqual {
    using is_transparent = void;
    const Records* records;
    bool operator()(uint32_t a, uint32_t b) const { return a == b || (*this)(a, (*records)[b].key); }
    bool operator()(uint32_t a, const PackedContext& b) const { return (*records)[a].key == b; }
    bool operator()(const PackedContext& a, uint32_t b) const { return (*this)(b, a); }
  };
  struct NameHash {
    using is_transparent = void;
    const Records* records;
    size_t operator()(const PackedName& name) const { return absl::Hash<PackedName>()(name); }
    size_t operator()(uint32_t index) const { return (*this)(RecordPacker::NameOf((*records)[index])); }
  };
  struct NameEqual {
    using is_transparent = void;
    const Records* records;
    bool operator()(uint32_t a, const PackedName& b) const {
      return RecordPacker::NameOf((*records)[a]) == b;
    }
    bool operator()(const PackedName& a, uint32_t b) const { return (*this)(b, a); }
    bool operator()(uint32_t a, uint32_t b) const {
      return a == b || (*this)(a, RecordPacker::NameOf((*records)[b]));
    }
  };
  struct PlaceLess {
    using is_transparent = void;
    const Records* records;
    bool operator()(uint32_t a, uint32_t b) const { return PlaceOf((*records)[a]) < PlaceOf((*records)[b]); }
    bool operator()(uint32_t a, const Place& b) const { return PlaceOf((*records)[a]) < b; }
    bool operator()(const Place& a, uint32_t b) const { return a < PlaceOf((*records)[b]); }
  };
  using Order = absl::btree_set<uint32_t, PlaceLess>;
  struct ExpiryLess {
    const Records* records;
    bool operator()(uint32_t a, uint32_t b) const {
      return std::pair((*records)[a].expires_at_ms, a) < std::pair((*records)[b].expires_at_ms, b);
    }
  };

  bool IsExpired(const PackedRecord& record) const;
  HybridTime NextTime() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Observe(const HybridTime& time) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<PackedContext> PackedOf(const ContextRef& context) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  ContextKey KeyOf(const PackedContext& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // The number of a record, live or expired; kNone.
  uint32_t IndexOf(const ContextRef& context) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  uint32_t IndexOf(const ContextKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return IndexOf(RefOf(key));
  }
  const Tombstone* TombstoneOf(const ContextRef& context) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  const Tombstone* TombstoneOf(const ContextKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return TombstoneOf(RefOf(key));
  }
  // Of a record that is there, as if it were not past its expiry.
  ContextSummary SummaryAt(uint32_t index) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  ContextSummary SummaryUnder(const ContextKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  void Tell(const ContextKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ReplicaState StateUnder(const ContextKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // The number of a live record. Errors: as Get.
  absl::StatusOr<uint32_t> Find(const ContextKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Who has a name by its record; kNone.
  uint32_t HolderOf(std::string_view tenant, const Digest& model_identity, std::string_view name) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  // Where a context stands in lists, or stood before it was removed. Errors: kContextNotFound.
  absl::StatusOr<Place> PlaceOf(const ContextKey& key) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  bool Matches(const PackedRecord& record, const ContextQuery& query) const ABSL_SHARED_LOCKS_REQUIRED(mu_);
  RecordPlan NewRecord(const ContextKey& key, const NewContext& context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RecordPlan Merge(const ContextRecord& old, const NewContext& context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether `name` is free for this record. Errors: FailedPrecondition (kNameInUse).
  absl::Status CheckName(const ContextRecord& record, const std::string& name) const
      ABSL_SHARED_LOCKS_REQUIRED(mu_);
  absl::Status ReserveName(const ContextRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ReleaseReservation(const ContextRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns its number.
  uint32_t Insert(const ContextRecord& record) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(uint32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void InsertTombstone(const ContextKey& key, const Tombstone& tombstone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EraseTombstone(const ContextKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;

  mutable SharedMutex mu_;
  TableObserver* observer_ ABSL_GUARDED_BY(mu_) = nullptr;
  RecordPacker packer_ ABSL_GUARDED_BY(mu_);
  Records records_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uint32_t, KeyHash, KeyEqual, HugeAllocator<uint32_t>> keys_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<uint32_t, NameHash, NameEqual> names_ ABSL_GUARDED_BY(mu_);
  std::map<NameKey, CacheId> reserved_names_ ABSL_GUARDED_BY(mu_);  // by plans that are not applied yet
  Order order_ ABSL_GUARDED_BY(mu_);
  absl::btree_set<uint32_t, ExpiryLess> expiries_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<PackedContext, Tombstone> tombstones_ ABSL_GUARDED_BY(mu_);
  absl::btree_set<std::pair<HybridTime, PackedContext>> tombstone_ages_ ABSL_GUARDED_BY(mu_);
  std::vector<uint32_t> touched_ ABSL_GUARDED_BY(mu_);  // those whose record says so; others are void
  HybridTime last_time_ ABSL_GUARDED_BY(mu_);
  uint64_t visible_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_RECORD_TABLE_H_
