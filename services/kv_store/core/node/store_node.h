// What one node of the store promises to callers in other processes, over its StoreCore: reservations,
// leases, existence, and in what life of the node all of it counts. Pure logic; the doors
// (services/kv_store/rpc) turn it into calls. Owned by the process beside the StoreCore; thread-safe. Calls
// may block on the disk.
//
// Calls take batches: each item has a result of its own, a miss is a result, and a bad item does not fail its
// neighbours. Items are served in order.
//
// Promises.
// - Bytes that a writer sends are visible after its commit and not before, and only if they have the
// checksums
//   that it says. Of writers of one object one is reserved; the rest are told who writes, and when to ask
//   again.
// - Leased bytes stay where they are until the lease ends, whatever becomes of the object; a transfer counts
// if
//   Confirm says, after it, that the lease is held. A lease or generation of another life of the node is
//   never held here, and no generation is ever given out twice.
// - What a client leaves behind ends with its goodbye, or by itself: leases with their duration, reservations
//   30 s after the last sign of life (reservations.h).
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_STORE_NODE_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_STORE_NODE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/system_random.h"
#include "services/kv_store/core/node/event_log.h"
#include "services/kv_store/core/node/event_source.h"
#include "services/kv_store/core/node/explanation.h"
#include "services/kv_store/core/node/incarnation.h"
#include "services/kv_store/core/node/lease_table.h"
#include "services/kv_store/core/node/node_types.h"
#include "services/kv_store/core/node/reservations.h"
#include "services/kv_store/core/store_core.h"

namespace epic::kv_store {

struct StoreNodeOptions {
  ReservationOptions reservations;
  LeaseOptions leases;
  size_t event_ring = 32'768;               // events kept for those who follow; some 10 MB
  const Clock* clock = SystemClock::Get();  // outlives the node
  RandomSource random = SystemRandom;
};

class StoreNode {
 public:
  // Counts the start on the store's disk. `store` outlives the node. Errors: those of CountBoot.
  static absl::StatusOr<std::unique_ptr<StoreNode>> Open(StoreCore* store, const StoreNodeOptions& options);
  // REQUIRES: no LayerFill is left.
  ~StoreNode() = default;
  StoreNode(const StoreNode&) = delete;
  StoreNode& operator=(const StoreNode&) = delete;

  // Of this life of the node.
  uint64_t incarnation() const { return incarnation_; }
  StoreCore* store() const { return store_; }

  // --- writing (reservations.h has the rules and the errors)

  // Takes the memory of each object. Errors of an item: kContextNotFound and the like; kStorageFull when
  // there is no room beside what is leased and being written; kBodyTooLarge; kInvalidRequest; kQueueFull.
  std::vector<ReserveResult> Reserve(PeerId peer, std::span<const ReserveItem> items);
  std::vector<TokenState> Heartbeat(std::span<const ReservationToken> tokens);
  // The memory of one layer, which the caller fills. It is the node's own transport that does: no peer ever
  // gets this memory.
  absl::StatusOr<LayerFill> BeginLayer(const ReservationToken& token, uint32_t layer) {
    return reservations_.BeginLayer(token, layer);
  }
  absl::Status FinishLayer(LayerFill fill, std::span<const uint32_t> crcs) {
    return reservations_.FinishLayer(std::move(fill), crcs);
  }
  absl::StatusOr<Committed> Commit(const ReservationToken& token, const Digest& build) {
    return reservations_.Commit(token, build);
  }
  std::vector<TokenState> Abort(std::span<const ReservationToken> tokens);

  // --- reading

  // Looks in memory, then on disk. The duration is brought within the bounds; each result says it. With
  // `streaming` an object may still be on its way up from disk (KvStore::AcquireStreaming): for transfers
  // that wait for its layers (KvObject::WaitLayer). If its load fails the lease is over; another call says
  // why it is a miss. Errors of an item: kInvalidRequest; kQueueFull when the peer has too many leases.
  std::vector<LeaseResult> Acquire(PeerId peer, std::span<const AcquireItem> items, int64_t duration_ms,
                                   bool streaming = false);
  // The leased object, to be sent from its memory. Whoever has the pointer may read on, also after the end of
  // the lease; but what was read then does not count. Errors: kLeaseEnded.
  absl::StatusOr<ObjectPtr> Read(PeerId peer, const LeaseId& lease);
  // After a transfer: its bytes count where kHeld is answered. May release in the same step.
  std::vector<LeaseState> Confirm(PeerId peer, std::span<const LeaseId> leases, bool release);
  std::vector<LeaseState> Renew(PeerId peer, std::span<const LeaseId> leases, int64_t duration_ms);
  // What the leases were before.
  std::vector<LeaseState> Release(PeerId peer, std::span<const LeaseId> leases);

  // Where objects of live contexts are, in any layout. Counts no use and gives no lease.
  std::vector<ObjectTiers> Exists(std::span<const ObjectName> names) const;
  // OK where there is none. Errors of an item: those of the disk.
  std::vector<absl::Status> Drop(std::span<const ObjectName> names);

  // --- following the node (event_log.h, event_source.h)

  // Up to `max` events from the cursor on; none where there is nothing new. A gap wants an inventory, and so
  // does a cursor of zeros.
  EventPage Events(const EventCursor& from, size_t max) { return log_.Read(from, max); }
  // Up to `max` of what the node holds, contexts first. Begin with zeros, go on with `next` until `done`,
  // then with events from `tail`. REQUIRES: max > 0.
  InventoryPage Inventory(const InventoryPlace& from, size_t max) { return source_.Inventory(from, max); }
  EventLog::Counts event_counts() const { return log_.counts(); }
  // Why a reader gets the object, or does not; with a layout: in that one. Looks through all that may be in
  // the way: for people.
  Explanation Explain(const ObjectName& name, const std::optional<KvLayout>& layout);

  // --- time, and the end of peers

  // Releases and aborts all of a peer.
  void Goodbye(PeerId peer);
  // Frees what leases and reservations past their end hold. To be called about once a second.
  void Sweep();

  Reservations::Counts reservation_counts() const { return reservations_.counts(); }
  LeaseTable::Counts lease_counts() const { return leases_.counts(); }

 private:
  StoreNode(StoreCore* store, const StoreNodeOptions& options, uint64_t incarnation);
  ReserveResult ReserveOne(PeerId peer, const ReserveItem& item);
  absl::StatusOr<std::unique_ptr<ArenaWriter>> TakeMemory(const ReserveItem& item);
  Verdict VerdictOn(const Explanation& e, MissCause cause);
  // Whether something was past its end and has been freed just now.
  bool MayFreeMemory();
  LeaseResult FindOne(const AcquireItem& item, bool streaming);
  template <typename Ask>
  std::vector<LeaseState> AskLeases(std::span<const LeaseId> leases, Ask ask) const;

  StoreCore* const store_;
  const uint64_t incarnation_;
  Reservations reservations_;
  LeaseTable leases_;
  EventLog log_;
  EventSource source_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_STORE_NODE_H_
