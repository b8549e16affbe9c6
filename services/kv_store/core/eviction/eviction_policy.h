// In what order the entries of a tier go: the interface of LRU and S3-FIFO. Pure logic over keys and sizes:
// no bytes of objects, no clock, no locks; one thread at a time. A policy orders entries of a pool that its
// owner (tier_eviction.h) shares among several policies, so that an entry keeps its number when it moves
// from one to another.
//
// An entry that may not go when its turn comes, because somebody holds it, counts as used: it goes to the
// young end. Quotas, pins and deadlines are not here.
#ifndef EPIC_SERVICES_KV_STORE_CORE_EVICTION_EVICTION_POLICY_H_
#define EPIC_SERVICES_KV_STORE_CORE_EVICTION_EVICTION_POLICY_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>

#include "common/storage/context_record.h"
#include "services/kv_store/core/indexed_pool.h"

namespace epic::kv_store {

enum class EvictionKind : uint8_t { kLru, kS3Fifo };

using EntrySlot = uint32_t;
inline constexpr EntrySlot kNoEntry = std::numeric_limits<EntrySlot>::max();

struct EvictionEntry {
  static constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

  uint64_t owner = 0;  // by which the owner of the tier finds the object; never looked at here
  uint64_t fingerprint =
      0;  // hash of the key: how a key that comes back is known. A collision is a wrong guess
  uint64_t bytes = 0;
  // The tier's.
  int64_t used_at_ms = 0;
  int64_t pin_until_ms = kForEver;
  uint32_t tenant = 0;
  Pin pin = Pin::kNone;
  // The policy's: its place in a queue.
  uint8_t queue = 0;
  uint8_t uses = 0;
  EntrySlot older = kNoEntry;
  EntrySlot younger = kNoEntry;
};

using EntryPool = IndexedPool<EvictionEntry>;
// Whether nobody holds the entry. Answers the same throughout one call.
using MayGo = std::function<bool(const EvictionEntry&)>;

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // REQUIRES: the entry is in no policy; for the others, that it is in this one.
  virtual void Add(EntrySlot slot) = 0;
  virtual void Use(EntrySlot slot) = 0;
  // The entry leaves for another reason than eviction, and is not remembered.
  virtual void Remove(EntrySlot slot) = 0;
  virtual void Evict(EntrySlot slot) = 0;

  // The entry that goes next; kNoEntry when none may. Does not take it out: a second call gives the same one.
  // Time: amortised constant, and each entry is passed a bounded number of times where many may not go.
  virtual EntrySlot Next(const MayGo& may_go) = 0;

  // The same order over a copy of the pool, which outlives it.
  virtual std::unique_ptr<EvictionPolicy> CloneOnto(EntryPool* pool) const = 0;
  // "lru", "small" or "main".
  virtual std::string_view QueueOf(EntrySlot slot) const = 0;
  virtual uint64_t bytes() const = 0;
  virtual uint64_t entries() const = 0;
  // What it takes beside the pool.
  virtual uint64_t memory_bytes() const = 0;
};

// `pool` outlives the policy.
std::unique_ptr<EvictionPolicy> MakeEvictionPolicy(EvictionKind kind, EntryPool* pool);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_EVICTION_EVICTION_POLICY_H_
