// What a store node and its callers hand to one another: names, tokens, leases, and the results of one item
// of a batch. Value types; what is promised about them stands in store_node.h.
#ifndef EPIC_SERVICES_KV_STORE_CORE_NODE_NODE_TYPES_H_
#define EPIC_SERVICES_KV_STORE_CORE_NODE_NODE_TYPES_H_

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/base/digest.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/object_table.h"

namespace epic::kv_store {

// One client process, or one connection of it, by a number of its door's choice that is not used for another
// one while leases or reservations of it are left.
using PeerId = uint64_t;

// Names bytes in the memory of a node for ever: no other bytes, of this life of the node or another one, get
// the same. All zero: none.
struct Generation {
  uint64_t incarnation = 0;  // of the life (incarnation.h)
  uint64_t counter = 0;      // of the region in its arena
  auto operator<=>(const Generation&) const = default;
};

struct ObjectName {
  std::string tenant;
  ObjectKey key;
};

// --- writing

// 128 random bits: who has them may write this object. All zero: none.
struct ReservationToken {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const ReservationToken&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ReservationToken& token) {
    return H::combine(std::move(h), token.high, token.low);
  }
};

// 128 random bits of a caller's own, for one reserve of one object: who asks with them again, because the
// answer was lost, gets the same token. All zero: none.
struct ReserveRequestId {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const ReserveRequestId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const ReserveRequestId& id) {
    return H::combine(std::move(h), id.high, id.low);
  }
};

struct ReserveItem {
  std::string tenant;
  ObjectKey key;
  KvLayout layout;
  std::string source;  // who writes, for those who wait and for explain; at most 256 bytes
  ReserveRequestId request;
};

enum class ReserveOutcome : uint8_t {
  kReserved,  // write it
  kExists,    // nothing to do
  kBusy,      // another one writes it just now
  kFailed,    // see status
};

struct ReserveResult {
  ReserveOutcome outcome = ReserveOutcome::kFailed;
  ReservationToken token;      // kReserved
  int64_t heartbeat_ms = 0;    // kReserved: give a sign of life at least so often
  int64_t age_ms = 0;          // kBusy: since it was reserved
  int64_t retry_after_ms = 0;  // kBusy
  std::string source;          // kBusy: who writes it
  absl::Status status;         // kFailed
};

enum class TokenState : uint8_t {
  kAlive,
  kCommitted,
  kAborted,
  kPreempted,  // it gave no sign of life for too long
  kFailed,     // its commit could not succeed any more, such as for a context that was deleted meanwhile
  kUnknown,    // never given out, or ended so long ago that it is forgotten
};

// What a commit made visible.
struct Committed {
  Digest build;           // of what readers get from now on
  Generation generation;  // the same
  bool own = true;        // false: another one's object of the same key and layout was there first
};

// --- reading

struct LeaseId {
  uint64_t incarnation = 0;
  uint64_t number = 0;
  auto operator<=>(const LeaseId&) const = default;
};

struct AcquireItem {
  std::string tenant;
  ObjectKey key;
  KvLayout layout;
};

enum class AcquireOutcome : uint8_t { kLeased, kMiss, kFailed };

struct LeaseResult {
  AcquireOutcome outcome = AcquireOutcome::kFailed;
  // kLeased. The holder counts the duration from before it sent its call.
  LeaseId lease;
  Generation generation;
  int64_t duration_ms = 0;
  ObjectPtr object;                           // its layout, build and checksums; held by the lease, too
  MissCause cause = MissCause::kNeverStored;  // kMiss
  absl::Status status;                        // kFailed
};

enum class LeaseState : uint8_t {
  kHeld,
  kEnded,      // expired, released, or never this peer's
  kOtherLife,  // of another incarnation of the node
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_CORE_NODE_NODE_TYPES_H_
