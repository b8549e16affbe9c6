// The KV store as its users see it: context records with their token ids, and KV objects.
//
// services/kv_store implements it (embedded in `epic serve`, remote later); tests use it too. Every call
// names its tenant. All calls are thread-safe and may block on the disk; none blocks for a compile.
//
// Promises: when CreateContext, UpdateContext or DeleteContext returns OK the change is on disk (synced). An
// object is invisible until Commit returned OK, and a reader gets exactly the bytes that were committed under
// that key and layout, or a miss. A miss is a result, not an error.
#ifndef EPIC_COMMON_STORAGE_KV_STORE_H_
#define EPIC_COMMON_STORAGE_KV_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/bytes.h"
#include "common/storage/cache_id.h"
#include "common/storage/context_record.h"
#include "common/storage/kv_object.h"

namespace epic {

struct NewContext {
  std::string tenant;
  Digest model_identity;
  std::string model;
  std::vector<TokenId> tokens;
  bool hidden = false;
  std::optional<int64_t> ttl_seconds;
  Pin pin = Pin::kNone;
  std::optional<int64_t> pin_until_ms;
  std::vector<std::string> tags;
  std::string name;
  CompilePrefixSpec compile_prefix;
  Durability durability = Durability::kReplicas;
};

struct CreateResult {
  ContextRecord record;
  bool created = false;  // false: it existed; expiry became the later, the stronger pin won, tags were united
};

struct ContextQuery {
  uint32_t limit = 20;     // 1..1000
  CacheId after;           // exclusive; empty: from the start. A context that is gone is known for 7 days
  bool descending = true;  // by created_at, then id
  std::optional<std::string> tag;
  std::optional<std::string> model;
  std::optional<ContextState> state;
  std::optional<std::string> name;
};

struct ContextPage {
  std::vector<ContextRecord> records;
  bool has_more = false;
};

// Fields that are set are changed. An inner nullopt clears the field.
struct ContextPatch {
  std::optional<std::optional<int64_t>> ttl_seconds;  // counted from now
  std::optional<Pin> pin;
  std::optional<std::optional<int64_t>> pin_until_ms;
  std::optional<std::vector<std::string>> tags;
  std::optional<std::string> name;
};

// Why an object was not found.
enum class MissCause : uint8_t {
  kNeverStored,
  kEvicted,
  kDeleted,
  kLayoutMismatch,  // another layout under the same key
  kChecksum,        // bytes were wrong; the copy is quarantined
  kIoError,
  kOldFormat,
  kNoMemory,  // on disk, but no room in host memory to read it to: all is leased
  kDiskSlow,  // on disk, but the disk did not give it in time
};

struct AcquireResult {
  std::shared_ptr<const KvObject> object;  // nullptr: a miss
  MissCause cause = MissCause::kNeverStored;
};

// Writes one object. Layers may come in any order, each exactly once. Destroying an uncommitted writer
// discards it. One thread at a time.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  // REQUIRES: slab.size() == layout.LayerBytes(). Errors: ResourceExhausted (kStorageFull).
  virtual absl::Status WriteLayer(uint32_t layer, ByteSpan slab) = 0;
  // Makes the object visible and returns it leased. Idempotent.
  // Errors: FailedPrecondition when a layer is missing; ResourceExhausted; NotFound when the context was
  // deleted.
  // With durability `object` it also waits for the disk: if that fails or takes too long the status says so,
  // the object is served from memory all the same, and a further Commit tries the disk again.
  virtual absl::StatusOr<std::shared_ptr<const KvObject>> Commit() = 0;
};

// A store's own name among the nodes that an erasure waits for.
inline constexpr std::string_view kLocalNode = "local";
// The nodes whose disks may still hold bytes of what was deleted; none: they are gone everywhere.
using ErasedDone = std::function<void(std::vector<std::string> pending)>;

struct StoreUsage {
  uint64_t contexts = 0;
  uint64_t objects_in_memory = 0;
  uint64_t memory_bytes = 0;
  uint64_t memory_capacity_bytes = 0;
  uint64_t memory_largest_hole_bytes =
      0;                           // the largest piece that is free: less than all that is, if fragmented
  uint64_t memory_held_bytes = 0;  // of objects that other processes read in place
  uint64_t memory_quarantined_bytes = 0;  // of these, those that are deleted
  uint64_t leased_objects = 0;            // objects with a holder outside the store
  uint64_t disk_bytes = 0;
  uint64_t reservations = 0;  // writers that are neither committed nor discarded
};

// What the store has seen of its disk since it was opened.
struct StoreDisk {
  uint64_t errors = 0;               // calls that the disk refused, or answered with damaged bytes
  int64_t last_error_steady_ns = 0;  // of the store's clock; 0: none
  bool full = false;                 // the last write that brought data found no room
  bool slow = false;                 // it answers far later than it used to, or than a disk should
  int64_t wait_ns = 0;               // longer than their bytes need: its calls lately, or up to now
  uint64_t late = 0;                 // calls of the store that did not wait for it to the end
  uint64_t not_written = 0;          // objects that were to be written, and for its slowness were not
};

class KvStore {
 public:
  virtual ~KvStore() = default;

  // --- records

  // Every change may also fail with what the disk says: ResourceExhausted (kStorageFull), Unavailable or
  // DataLoss; then nothing was changed. And with DeadlineExceeded (kDeadline) when the disk does not answer
  // in time: then it may still be made later, and is to be asked for again.

  // Creates or merges. Errors: FailedPrecondition (kNameInUse); InvalidArgument when there are no tokens, too
  // many, or a field is over its limit.
  virtual absl::StatusOr<CreateResult> CreateContext(const NewContext& context) = 0;
  // Errors: NotFound with kContextNotFound, kContextExpired or kContextDeleted.
  virtual absl::StatusOr<ContextRecord> GetContext(std::string_view tenant, const CacheId& id) = 0;
  // Errors: as GetContext.
  virtual absl::StatusOr<ContextRecord> FindByName(std::string_view tenant, const Digest& model_identity,
                                                   std::string_view name) = 0;
  // Errors: as GetContext; kContextObjectMissing when they are damaged; those of the disk.
  virtual absl::StatusOr<std::vector<TokenId>> GetTokens(std::string_view tenant, const CacheId& id) = 0;
  // Hidden and expired contexts are left out. Errors: InvalidArgument for the limit; kContextNotFound for the
  // cursor, with the param after.
  virtual absl::StatusOr<ContextPage> ListContexts(std::string_view tenant, const ContextQuery& query) = 0;
  // Errors: as GetContext and CreateContext.
  virtual absl::StatusOr<ContextRecord> UpdateContext(std::string_view tenant, const CacheId& id,
                                                      const ContextPatch& patch) = 0;
  // Idempotent: OK also when it never existed; the bool says whether it did. Readers of its objects finish.
  virtual absl::StatusOr<bool> DeleteContext(std::string_view tenant, const CacheId& id) = 0;
  // Deletes as DeleteContext does, and makes the bytes of this and of all that was deleted before physically
  // gone from the disk: token ids, slabs, and what logs have of them. It returns once the deletion is synced;
  // then `erased` is called, once, on any thread, perhaps before the return: it must not block. What is
  // pending then, because the disk refuses or a node is down, is erased as soon as it can be. An erasure goes
  // on whoever waits for it, also after a crash. When an error is returned `erased` is never called.
  virtual absl::StatusOr<bool> EraseContext(std::string_view tenant, const CacheId& id,
                                            ErasedDone erased) = 0;
  // Not synced: after a crash the state may be one of before. Errors: as GetContext.
  virtual absl::Status SetState(std::string_view tenant, const CacheId& id, ContextState state,
                                int64_t compile_ms, std::string_view error) = 0;
  // Counts a use. Not synced.
  virtual void Touch(std::string_view tenant, const CacheId& id) = 0;

  // --- objects

  // Errors: NotFound when there is no such context; ResourceExhausted when it cannot fit.
  virtual absl::StatusOr<std::unique_ptr<ObjectWriter>> Reserve(std::string_view tenant, const ObjectKey& key,
                                                                const KvLayout& layout) = 0;
  // Looks in memory, then on disk. Errors are for broken calls only; everything about the data is a miss.
  virtual absl::StatusOr<AcquireResult> Acquire(std::string_view tenant, const ObjectKey& key,
                                                const KvLayout& layout) = 0;
  // The same, but an object that is on disk may be given while it is read: KvObject::WaitLayer says when a
  // layer is there. Readers of an object share one load; one that lets go early disturbs nobody, and the load
  // goes on. After an error of WaitLayer another call misses with the cause. A store that cannot do this
  // gives whole objects.
  virtual absl::StatusOr<AcquireResult> AcquireStreaming(std::string_view tenant, const ObjectKey& key,
                                                         const KvLayout& layout) {
    return Acquire(tenant, key, layout);
  }
  // Drops copies of one object. OK when there are none.
  virtual absl::Status DropObject(std::string_view tenant, const ObjectKey& key) = 0;

  virtual StoreUsage Usage() = 0;
  // Never blocks.
  virtual StoreDisk Disk() = 0;
};

}  // namespace epic

#endif  // EPIC_COMMON_STORAGE_KV_STORE_H_
