// Who reads which object, and until when. Pure logic over a clock; its owner (store_node.h) finds the
// objects. Thread-safe: one lock for each group of peers, taken once for a batch.
//
// A lease holds its object (host_object.h), so that eviction passes over it and a deletion leaves its bytes
// where they are, until its end on the steady clock, its release, or the goodbye of its peer. At its end it
// is over, whether Sweep has run or not; Sweep only lets go of the memory. So is that of an object whose load
// from disk failed (HostObject::IsLost). Numbers are never used twice in the life of a table; a lease of
// another peer is none.
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_LEASE_TABLE_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_LEASE_TABLE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/kv_store/core/node/node_types.h"

namespace epic::kv_store {

struct LeaseOptions {
  int64_t min_ms = 1000;
  int64_t max_ms = 300'000;
  size_t max_per_peer = 16'384;
  size_t max = 131'072;
};

class LeaseTable {
 public:
  // `clock` outlives this.
  LeaseTable(const LeaseOptions& options, const Clock* clock) : options_(options), clock_(clock) {}

  // What a holder may ask for.
  int64_t BoundedMs(int64_t duration_ms) const;

  // A lease for each object, from now on; its number, or nullopt where there are too many that are not over.
  // REQUIRES: no object is nullptr.
  std::vector<std::optional<uint64_t>> Grant(PeerId peer, std::span<const ObjectPtr> objects,
                                             int64_t duration_ms);
  // The leased object; nullptr: the lease is over.
  ObjectPtr Find(PeerId peer, uint64_t number);
  // The rest say of each number whether it was a lease of the peer that is not over.
  std::vector<bool> Check(PeerId peer, std::span<const uint64_t> numbers);
  std::vector<bool> Release(PeerId peer, std::span<const uint64_t> numbers);
  // The end becomes the later one of its own and a duration from now.
  std::vector<bool> Renew(PeerId peer, std::span<const uint64_t> numbers, int64_t duration_ms);
  // Releases all of a peer. Returns how many there were.
  size_t Goodbye(PeerId peer);
  // Lets go of what leases that are over hold. Cheap where there are none. Returns how many there were.
  size_t Sweep();

  // Leases, not over, of the object in the region of this generation (arena.h). Looks through all: for
  // people.
  size_t CountOf(uint64_t generation);

  struct Counts {
    uint64_t held = 0;  // now; those that are over and not swept yet included
    // Since the start:
    uint64_t granted = 0;
    uint64_t expired = 0;
    uint64_t refused = 0;
  };
  Counts counts() const;

 private:
  static constexpr size_t kShards = 16;  // what 4 bits name
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  struct Lease {
    PeerId peer = 0;
    ObjectPtr object;
    int64_t end_ns = 0;

    bool IsOver(int64_t now_ns) const { return end_ns <= now_ns || object->IsLost(); }
  };
  struct Shard {
    Mutex mu;
    absl::flat_hash_map<uint64_t, Lease> leases ABSL_GUARDED_BY(mu);
    absl::flat_hash_map<PeerId, size_t> peers ABSL_GUARDED_BY(mu);
    uint64_t granted ABSL_GUARDED_BY(mu) = 0;
    // No lease ends before; may be early.
    std::atomic<int64_t> first_end_ns{kNever};
  };
  using Leases = absl::flat_hash_map<uint64_t, Lease>;

  // Peers may be multiples of anything.
  static size_t IndexOf(PeerId peer) { return (peer * 0x9E3779B97F4A7C15u) >> 60; }
  Shard& ShardOf(PeerId peer) { return shards_[IndexOf(peer)]; }
  Lease* FindIn(Shard* shard, PeerId peer, uint64_t number, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard->mu);
  // Takes a lease out; its object is destroyed by the caller, without the lock.
  ObjectPtr Drop(Shard* shard, Leases::iterator lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard->mu);
  // Takes out the leases that are over. Returns how many there were.
  size_t EndOver(Shard* shard, int64_t now_ns, std::vector<ObjectPtr>* freed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard->mu);
  void NoteEnd(Shard* shard, int64_t end_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard->mu);

  const LeaseOptions options_;
  const Clock* const clock_;
  std::atomic<uint64_t> held_{0};
  std::atomic<uint64_t> granted_{0};
  std::atomic<uint64_t> expired_{0};
  std::atomic<uint64_t> refused_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_LEASE_TABLE_H_
