// The store: records and objects over a TableStore and a SlabStore. Implements KvStore in process.
//
// RecordTable and ObjectTable hold the state and the rules; this class moves the bytes and keeps the order:
// rows first, then memory, then the answer. Changes of one context are serialised by a KeyLock, so that many
// contexts share one sync of the disk. Called from any thread. Of its own it has one that writes objects and
// keeps house (WriteBehind), one that erases (Eraser), those that read objects layer by layer and those that
// scrub, warm up, look after late loads and probe a slow disk (Scrubber), and those of calls that wait for
// the disk (DiskCalls). Objects may outlive the store; writers may not.
//
// Order on disk. Record, token ids and the end of a tombstone are one synced batch; a removal (record, token
// ids, object entries, slabs, tombstone) is another. Slabs are written and synced under a number of their
// own; the batch with the object entry, which makes them an object, also removes the copy that it replaces.
// Slabs of a small object are in that batch. The batch is synced only where the context asks for a durable
// object: else it is safe with the next sync. After a crash an object is whole or absent; slabs without an
// entry are free space at open.
#ifndef EPIC_SERVICES_KV_STORE_CORE_STORE_CORE_H_
#define EPIC_SERVICES_KV_STORE_CORE_STORE_CORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/arena.h"
#include "services/kv_store/core/arena_writer.h"
#include "services/kv_store/core/disk_calls.h"
#include "services/kv_store/core/disk_watch.h"
#include "services/kv_store/core/eraser.h"
#include "services/kv_store/core/key_locks.h"
#include "services/kv_store/core/load_progress.h"
#include "services/kv_store/core/object_table.h"
#include "services/kv_store/core/record_table.h"
#include "services/kv_store/core/row_slab_store.h"
#include "services/kv_store/core/scrubber.h"
#include "services/kv_store/core/slab_store.h"
#include "services/kv_store/core/table_store.h"
#include "services/kv_store/core/warm_up.h"
#include "services/kv_store/core/watched_slabs.h"
#include "services/kv_store/core/watched_tables.h"
#include "services/kv_store/core/write_behind.h"

namespace epic::kv_store {

// What a store takes of one object, its head included: sizes beyond are refused with kBodyTooLarge.
inline constexpr uint64_t kMaxObjectBytes = uint64_t{4} << 30;

// REQUIRES: ValidateLayout accepts the layout.
absl::Status CheckObjectSize(const KvLayout& layout);

// Makes the store of slabs that are not small; `sync_index` makes what was written to the tables before
// outlive a crash.
using SlabStoreMaker =
    std::function<absl::StatusOr<std::unique_ptr<SlabStore>>(std::function<absl::Status()> sync_index)>;

struct StoreOptions {
  uint64_t memory_bytes = uint64_t{1} << 30;     // of the arena: objects and uncommitted writers
  uint64_t disk_bytes_max = uint64_t{16} << 30;  // 0: objects are kept in memory only
  // Unset: slabs are rows of the tables.
  SlabStoreMaker make_slabs;
  // False: only objects of before are read from there; new ones become rows.
  bool write_to_slabs = true;
  // Objects up to this size whose slabs are inline values go through the log with their entry.
  uint64_t small_object_bytes = uint64_t{256} << 10;
  EvictionKind eviction = EvictionKind::kS3Fifo;
  Watermarks watermarks;                      // of memory
  std::map<std::string, TenantQuota> quotas;  // by tenant; others may take what there is
  const Clock* clock = SystemClock::Get();    // outlives the store
  uint32_t load_threads = 2;                  // that read objects for AcquireStreaming
  // For how long a call waits for the disk, beyond what its bytes need; 0: as long as it takes. Objects on
  // disk are a miss then, and changes may be made later (store_patience.cc).
  int64_t disk_wait_ms = 0;
  // How often a slow disk is tried, so that it is seen to be quick again; 0: never.
  int64_t disk_probe_ms = 0;
  WriteBehind::Options writer;
  Scrubber::Options scrubber;  // off by default
  WarmUpOptions warm_up;       // off by default
  // False: tombstones stay until ForgetTombstone. Nodes of a cluster say when.
  bool forgets_tombstones = true;
};

class StoreCore final : public KvStore {
 public:
  // Reads what the tables hold. Errors: DataLoss or Unimplemented when a record or tombstone cannot be read,
  // those of the TableStore, and Unavailable when there is no such memory. A damaged object entry is no
  // error: that object is gone.
  static absl::StatusOr<std::unique_ptr<StoreCore>> Open(std::unique_ptr<TableStore> tables,
                                                         const StoreOptions& options);
  ~StoreCore() override;

  absl::StatusOr<CreateResult> CreateContext(const NewContext& context) override;
  absl::StatusOr<ContextRecord> GetContext(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<ContextRecord> FindByName(std::string_view tenant, const Digest& model_identity,
                                           std::string_view name) override;
  absl::StatusOr<std::vector<TokenId>> GetTokens(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<ContextPage> ListContexts(std::string_view tenant, const ContextQuery& query) override;
  absl::StatusOr<ContextRecord> UpdateContext(std::string_view tenant, const CacheId& id,
                                              const ContextPatch& patch) override;
  absl::StatusOr<bool> DeleteContext(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<bool> EraseContext(std::string_view tenant, const CacheId& id, ErasedDone erased) override;
  absl::Status SetState(std::string_view tenant, const CacheId& id, ContextState state, int64_t compile_ms,
                        std::string_view error) override;
  void Touch(std::string_view tenant, const CacheId& id) override;
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Reserve(std::string_view tenant, const ObjectKey& key,
                                                        const KvLayout& layout) override;
  // The same writer, to be filled in place.
  absl::StatusOr<std::unique_ptr<ArenaWriter>> ReserveInArena(std::string_view tenant, const ObjectKey& key,
                                                              const KvLayout& layout);
  absl::StatusOr<AcquireResult> Acquire(std::string_view tenant, const ObjectKey& key,
                                        const KvLayout& layout) override;
  // What is on disk is read on a thread of the store's own, unless it is small or too much waits for those
  // threads already: then it is whole. A load always goes on to its end, or to Stop().
  absl::StatusOr<AcquireResult> AcquireStreaming(std::string_view tenant, const ObjectKey& key,
                                                 const KvLayout& layout) override;
  absl::Status DropObject(std::string_view tenant, const ObjectKey& key) override;
  // Where a live context has such an object. Counts no use and gives no lease.
  ObjectTiers Where(std::string_view tenant, const ObjectKey& key) const;
  // Whether it has one anywhere.
  bool Exists(std::string_view tenant, const ObjectKey& key) const;
  // How an object stands: what keeps it, or why it is not there.
  ObjectStanding Explain(std::string_view tenant, const ObjectKey& key);
  // Whether memory for such an object could be had now, if what nobody holds were evicted. Looks through all:
  // for people.
  bool MayFit(const KvLayout& layout);
  StoreUsage Usage() override;
  StoreDisk Disk() override;

  // Of the region (arena.h) of what readers of the key get from memory now; 0: nothing. Never blocks on the
  // disk.
  uint64_t GenerationInMemory(std::string_view tenant, const ObjectKey& key);
  const Arena& arena() const { return *arena_; }

  // --- among nodes

  // What this node knows of a context; nullopt: nothing.
  std::optional<ReplicaState> StateOf(const ContextKey& key) const { return records_.StateOf(key); }
  // Joins what another node knows with what is known here; synced. `tokens` may be null where the context is
  // known here already, or gone in `state`. Errors: FailedPrecondition when they are needed, InvalidArgument
  // when they are not those of the Cache ID or the record is another context's; those of the disk: then
  // nothing was changed.
  absl::Status JoinContext(const ContextKey& key, const ReplicaState& state,
                           const std::vector<TokenId>* tokens);
  // What a tombstone says is known from then on to nobody who asks here. Errors: those of the disk.
  absl::Status ForgetTombstone(const ContextKey& key);
  // The same of some, the oldest, that were written before `time`.
  absl::Status ForgetTombstonesBefore(const HybridTime& time);

  // A time later than `seen` and than all that is known here: for a change that follows on them.
  HybridTime Tick(const HybridTime& seen) { return records_.Tick(seen); }
  // Up to `limit` contexts of which something is known here, in the order of their rows; from the first on,
  // or behind `after`. Errors: those of the disk.
  absl::StatusOr<std::vector<ContextKey>> KnownContexts(const std::optional<ContextKey>& after, size_t limit);
  // The token ids of a context whose record is here, expired or not. Errors: NotFound; DataLoss when they are
  // damaged; those of the disk.
  absl::StatusOr<std::vector<TokenId>> StoredTokens(const ContextKey& key);
  // As if this node had never heard of the context: record, token ids, objects and tombstone go, synced.
  // Errors: those of the disk.
  absl::Status ForgetContext(const ContextKey& key);
  // When it returns OK, whatever was removed before the call is physically gone: token ids, slabs and what
  // the log has of them. Waits for objects on their way to the disk, and for reads that run now: may take
  // long. Errors: those of the disk.
  absl::Status Erase();
  // A row about this node; nullopt: none. Put is synced. Errors: those of the disk.
  absl::StatusOr<std::optional<std::string>> GetNodeRow(std::string_view name);
  absl::Status PutNodeRow(std::string_view name, std::string value);

  // --- for who tells others of it (core/node)

  // Told of every change from now on (table_observer.h); nullptr: nobody is. It outlives that.
  void SetObserver(TableObserver* observer);
  // All that there is, page by page; see the tables.
  std::vector<std::pair<TenantObjectKey, ObjectTiers>> ListTiers(uint32_t* place, size_t max) const {
    return objects_.ListTiers(place, max);
  }
  std::vector<std::pair<ContextKey, ContextSummary>> ListSummaries(uint32_t* place, size_t max) const {
    return records_.ListSummaries(place, max);
  }
  ContextSummary SummaryOf(const ContextKey& key) const { return records_.SummaryOf(key); }

  // Waits until every object committed before has been tried on disk.
  void DrainWrites() { writer_->Drain(); }
  // Waits until no load that AcquireStreaming began is under way.
  void DrainLoads() ABSL_LOCKS_EXCLUDED(loads_mu_);
  // Waits until every erasure that was asked for before, also in a life before, has been tried.
  void DrainErasures() { eraser_->Drain(); }
  // Expires what is due, forgets old tombstones, writes down uses, reclaims space of deletions every 6 hours.
  // Runs by itself on the writer's thread.
  void Housekeep();
  // Re-reads every copy on disk and drops those that are damaged. Runs by itself on the scrubber's thread.
  void ScrubPass(const ScrubPace& pace);
  ScrubCounts Scrubbed() const;
  // Reads to memory what was used most before the start (warm_up.h). Runs by itself, once, on a thread.
  void WarmUpPass(const ScrubPace& pace);
  WarmUpCounts WarmedUp() const;
  // Writes what is queued, as far as the disk takes it in time, and ends the writer. Waits for calls of the
  // disk that were begun. Later calls of the store still work; objects committed from then on stay in memory
  // only. Idempotent.
  void Stop();

 private:
  class Writer;

  StoreCore(std::unique_ptr<TableStore> tables, std::shared_ptr<Arena> arena, const StoreOptions& options);
  absl::Status Load();
  absl::Status LoadRecords();
  absl::Status LoadObjects();
  absl::Status ScanAll(Table table, const std::function<bool(std::string_view, std::string_view)>& visit);

  // What the calls of that name do, for as long as it takes.
  absl::StatusOr<CreateResult> CreateNow(const NewContext& context);
  absl::StatusOr<std::vector<TokenId>> GetTokensNow(std::string_view tenant, const CacheId& id);
  absl::StatusOr<ContextRecord> UpdateNow(const ContextKey& key, const ContextPatch& patch);
  absl::Status SetStateNow(const ContextKey& key, ContextState state, int64_t compile_ms,
                           std::string_view error);
  absl::Status DropNow(const TenantObjectKey& object);
  absl::StatusOr<std::vector<TokenId>> ReadTokens(const ContextKey& key);
  absl::Status CheckStoredTokens(const ContextKey& key, const NewContext& context, bool* rewrite);
  std::vector<uint64_t> AddObjectRemovals(const ContextKey& key, WriteBatch* batch);
  void FreeSlabs(const std::vector<uint64_t>& numbers);
  absl::Status WritePlan(const ContextKey& key, const RecordPlan& plan, const std::vector<TokenId>* tokens,
                         Sync sync);
  absl::StatusOr<bool> RemoveContext(const ContextKey& key, RemovalCause cause, std::string_view erase_row);
  std::vector<uint64_t> AddRemoval(const ContextKey& key, WriteBatch* batch);
  void ForgetObjects(const ContextKey& key, const std::vector<uint64_t>& removed);
  void ExpireDue();
  void PersistUses();
  void ReclaimIfDue();
  absl::Status LoadErasures();
  absl::Status EraseRemoved();
  absl::Status EraseDue(const std::vector<std::string>& rows);

  std::unique_ptr<ArenaRegion> AllocateRegion(const KvLayout& layout);
  absl::StatusOr<AcquireResult> Get(std::string_view tenant, const ObjectKey& key, const KvLayout& layout,
                                    ObjectTable::Want want);
  AcquireResult LoadFromDisk(const TenantObjectKey& key, const Digest& model_identity, const DiskCopy& copy,
                             ObjectTable::Want want);
  // The same, while the caller waits in bounded time.
  AcquireResult LoadInTime(const TenantObjectKey& key, const Digest& model_identity, const DiskCopy& copy,
                           ObjectTable::Want want);
  using Fill = std::function<AcquireResult(const std::function<bool()>& go_on)>;
  bool LoadInBackground(Fill fill) ABSL_LOCKS_EXCLUDED(loads_mu_);
  AcquireResult EndLoad(const TenantObjectKey& key, uint64_t number, const ObjectPtr& object,
                        const absl::Status& status);
  // From now on the load fails if its layers do not come in time.
  void WatchLoad(const TenantObjectKey& key, const DiskCopy& copy, std::shared_ptr<LoadProgress> progress)
      ABSL_LOCKS_EXCLUDED(loads_mu_);
  void FailLateLoads() ABSL_LOCKS_EXCLUDED(loads_mu_);
  // Who loaded copy `number` stops waiting.
  void LeaveLoad(const TenantObjectKey& key, uint64_t number, DiskCalls::End end);
  // Whether writing is so slow that nothing waits for it which need not.
  bool IsWritingSlow() const;
  void ProbeDisk();
  void ProbeReading();
  void Quarantine(const TenantObjectKey& key, uint64_t number, MissCause cause);
  std::vector<TenantObjectKey> HottestOnDisk();
  bool WarmUpObject(const TenantObjectKey& key, const ScrubPace& pace);
  bool WarmUpCopy(const TenantObjectKey& key, const Digest& model_identity, const DiskCopy& copy);
  bool WaitForIdleDisk(uint64_t bytes, const ScrubPace& pace);
  bool ScrubObject(const TenantObjectKey& key, const DiskCopy& copy, const ScrubPace& pace);
  // Publishes `object` the first time; after that, with what `published` says of it, only tries the disk
  // again.
  absl::Status CommitObject(const TenantObjectKey& key, const ObjectPtr& object,
                            std::optional<ObjectTable::Published>* published);

  // On the writer's thread.
  absl::Status WriteObject(const WriteBehind::Item& item);
  absl::Status TryWriteObject(const WriteBehind::Item& item);
  bool IsSmall(const KvLayout& layout) const;
  SlabStore* HomeOf(uint64_t number);
  absl::StatusOr<bool> WriteEntry(const WriteBehind::Item& item, uint64_t number, SlabExtents extents);
  uint64_t DiskRoom();
  bool MakeDiskRoom(uint64_t bytes);
  void FreeDisk(uint64_t bytes);
  void KeepDiskInBounds();
  absl::Status Reclaim();
  void GiveBackToAShortDisk();
  uint64_t DiskPhysicalBytes();
  bool TooManyOrphans() ABSL_LOCKS_EXCLUDED(orphans_mu_);
  void AddOrphan(const TenantObjectKey& key, uint64_t number) ABSL_LOCKS_EXCLUDED(orphans_mu_);
  absl::Status DropOrphans() ABSL_LOCKS_EXCLUDED(orphans_mu_);
  absl::Status DropOrphan(const TenantObjectKey& key, uint64_t number);
  absl::Status DropDiskCopy(const TenantObjectKey& key, uint64_t number, MissCause cause);
  absl::Status RemoveDiskCopy(const TenantObjectKey& key, uint64_t number, MissCause cause);

  DiskWatch watch_;
  const std::unique_ptr<WatchedTables> tables_;
  RowSlabStore rows_;
  std::unique_ptr<WatchedSlabs> slabs_;  // constant once opened; nullptr: all slabs are rows
  const StoreOptions options_;
  const uint64_t disk_limit_;  // of the sum of object sizes: 90 % of disk_bytes_max
  const std::shared_ptr<Arena> arena_;
  KeyLocks locks_;
  RecordTable records_;
  ObjectTable objects_;
  std::atomic<uint64_t> reservations_{0};
  std::atomic<uint64_t> next_number_{1};
  std::atomic<uint64_t> next_erasure_{1};
  std::atomic<int64_t> deleted_since_ns_{0};  // first deletion since the last reclaim; 0: none

  Mutex orphans_mu_;
  // Slabs that are no object's any more, by number, of which the disk did not take the deletion yet. An entry
  // may still name them.
  std::map<uint64_t, TenantObjectKey> orphans_ ABSL_GUARDED_BY(orphans_mu_);

  std::atomic<uint64_t> scrub_passes_{0};
  std::atomic<uint64_t> scrub_objects_{0};
  std::atomic<uint64_t> scrub_bytes_{0};
  std::atomic<uint64_t> scrub_damaged_{0};
  std::atomic<uint64_t> scrub_errors_{0};

  std::atomic<uint64_t> disk_loads_{0};  // objects that readers wanted from disk
  std::atomic<bool> warm_up_done_{false};
  std::atomic<uint64_t> warm_up_objects_{0};
  std::atomic<uint64_t> warm_up_bytes_{0};
  std::atomic<uint64_t> warm_up_pauses_{0};
  std::atomic<uint64_t> warm_up_errors_{0};

  // A load whose layers somebody may wait for.
  struct WatchedLoad {
    TenantObjectKey key;
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint32_t layers = 0;
    std::shared_ptr<LoadProgress> progress;
    uint32_t ready = 0;  // layers, when it was looked at last
    Patience patience;   // for the next one
  };
  Mutex loads_mu_;
  CondVar load_ended_;
  uint64_t background_loads_ ABSL_GUARDED_BY(loads_mu_) = 0;
  std::vector<WatchedLoad> watched_loads_ ABSL_GUARDED_BY(loads_mu_);
  uint64_t late_loads_ ABSL_GUARDED_BY(loads_mu_) = 0;
  std::atomic<bool> stopping_{false};
  uint32_t probe_place_ = 0;  // of the prober's thread

  // The threads of each of these use all of the above.
  DiskCalls reads_;    // of calls that wait for the disk
  DiskCalls changes_;  // the same
  std::unique_ptr<ThreadExecutor> loader_;
  std::unique_ptr<Scrubber> minder_;  // of loads
  std::unique_ptr<Scrubber> prober_;
  std::unique_ptr<Scrubber> warmer_;
  std::unique_ptr<Scrubber> scrubber_;
  std::unique_ptr<Eraser> eraser_;
  std::unique_ptr<WriteBehind> writer_;
};

// A store that lives in memory and dies with it: for tests and for trying things out.
std::unique_ptr<KvStore> MakeMemoryKvStore(uint64_t memory_bytes, const Clock* clock = SystemClock::Get());

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_STORE_CORE_H_
