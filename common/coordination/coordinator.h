// What EPIC asks of a small, strongly consistent store of keys that all parts of a cluster share: keys with
// revisions, transactions, leases and watches. Elections (election.h) and membership (membership.h) stand on
// it; etcd/ is the real one, testing/fake_coordination.h the one of tests.
//
// Thread-safe. No call blocks: answers come to callbacks, which run one at a time on a thread of the
// coordinator and never under a lock of it; only refusals are told inside the call, so hold no lock then
// that the callback takes. A callback may make further calls; it must not block, and must not Stop or destroy
// the coordinator. Every bound is below.
//
// Keys and values are bytes. Not for much data, nor for changes at a high rate.
#ifndef EPIC_COMMON_COORDINATION_COORDINATOR_H_
#define EPIC_COMMON_COORDINATION_COORDINATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace epic {

// Grows by one with every transaction that changes something. Never 0.
using Revision = int64_t;
using LeaseId = int64_t;  // 0: none
using WatchId = uint64_t;

struct CoordinationLimits {
  static constexpr size_t kKeyBytes = 1024;
  static constexpr size_t kValueBytes = 256 * 1024;
  static constexpr size_t kGuards = 64;
  static constexpr size_t kChanges = 64;
  static constexpr size_t kTransactionBytes = 1024 * 1024;
  static constexpr size_t kListedKeys = 100'000;  // of one List
  // Of one coordinator at a time.
  static constexpr size_t kCalls = 1024;  // that have not been answered
  static constexpr size_t kWatches = 64;
  static constexpr size_t kLeases = 64;
};

struct KeyValue {
  std::string key;
  std::string value;
  Revision created = 0;   // of the put that made the key, after its last deletion
  Revision modified = 0;  // of its last put
  LeaseId lease = 0;      // with which the key ends
  bool operator==(const KeyValue&) const = default;
};

// One key, or all keys that begin with a prefix; the empty prefix: all keys.
struct KeyRange {
  std::string key;
  bool is_prefix = false;
  static KeyRange One(std::string_view key) { return {std::string(key), false}; }
  static KeyRange Prefix(std::string_view prefix) { return {std::string(prefix), true}; }
  bool Contains(std::string_view other) const { return is_prefix ? other.starts_with(key) : other == key; }
};

// In the order of their keys, all as they were at `revision`.
struct Listing {
  std::vector<KeyValue> items;
  Revision revision = 0;
};

// What must be true of a key for a transaction to be applied.
struct Guard {
  enum class Kind : uint8_t { kAbsent, kCreatedAt, kModifiedAt, kValueIs };
  Kind kind = Kind::kAbsent;
  std::string key;
  Revision revision = 0;  // of kCreatedAt and kModifiedAt
  std::string value;      // of kValueIs, which a key that is absent never satisfies
  static Guard Absent(std::string_view key);
  static Guard CreatedAt(std::string_view key, Revision revision);
  static Guard ModifiedAt(std::string_view key, Revision revision);
  static Guard ValueIs(std::string_view key, std::string_view value);
};

struct Change {
  bool is_put = false;  // else a deletion
  KeyRange range;       // of a put: one key
  std::string value;
  LeaseId lease = 0;
  static Change Put(std::string_view key, std::string_view value, LeaseId lease = 0);
  static Change Delete(KeyRange range);
};

// All of `changes` if all of `guards` hold, else none. Changes touch each key once at most.
struct Transaction {
  std::vector<Guard> guards;
  std::vector<Change> changes;
};

struct TransactionResult {
  bool applied = false;
  Revision revision = 0;
  // Not applied: the key of each guard as it was then, nullopt where it was absent.
  std::vector<std::optional<KeyValue>> found;
};

struct Lease {
  LeaseId id = 0;
  int64_t ttl_ms = 0;  // what was granted, which may be longer than what was asked for
};

enum class LeaseState : uint8_t {
  kHeld,       // again, after kUncertain
  kUncertain,  // its time is over by our clock since the last renewal that is known: it may have ended
  kLost,       // it has ended, and its keys with it; nothing follows
};

struct KeyChange {
  bool is_put = false;  // else the key is gone: of `item` only key and modified count then
  KeyValue item;
};

struct WatchUpdate {
  enum class Kind : uint8_t {
    kChanges,         // in order, none left out, none twice; those of one revision come together
    kCompacted,       // changes that were not told are forgotten
    kHistoryChanged,  // the store behind is another one, or was restored from a backup
    kRefused,         // the store will not watch that
  };
  Kind kind = Kind::kChanges;  // all but kChanges end the watch: list and watch anew
  std::vector<KeyChange> changes;
  Revision revision = 0;  // of kChanges: of the last change
  // Whether it ends the watch.
  bool list_again() const { return kind != Kind::kChanges; }
};

struct CoordinationHealth {
  bool up = false;                 // the store answered the last time it was asked
  int64_t answered_steady_ns = 0;  // when it last did; 0: never
  Revision revision = 0;           // the newest seen in the present history
  uint64_t cluster = 0;            // id of the store; 0: never reached
  uint64_t histories_lost = 0;     // how often it turned out to be another one, or an older state of itself
  uint64_t keepalive_failures = 0;
  uint64_t failovers = 0;  // to another endpoint
  std::string endpoint;    // in use
  std::string fault;       // why it is not up
};

class Coordinator {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;
  using DoneStatus = std::function<void(absl::Status)>;
  using LeaseListener = std::function<void(LeaseState)>;
  using WatchListener = std::function<void(const WatchUpdate&)>;

  virtual ~Coordinator() = default;

  // Each `done` below is called once. Refusals of all calls, told inside them: InvalidArgument
  // (invalid_request) for what is over a limit or makes no sense; ResourceExhausted (queue_full) for one
  // call, lease or watch too many; Cancelled (client_gone) after Stop. Errors: Unavailable
  // (coordination_unavailable) and DeadlineExceeded (deadline_exceeded) when the store did not answer.

  // Reads what a majority holds: everything that was answered before the call is in it. `at`: a revision of
  // before; 0: now. Asks again by itself, elsewhere, while its deadline allows. Errors: OutOfRange when `at`
  // is compacted or not yet there; ResourceExhausted for more than kListedKeys.
  virtual void List(KeyRange range, Revision at, Done<Listing> done) = 0;

  // Changes nothing or everything, at one revision. Not repeated by itself: after Unavailable and
  // DeadlineExceeded it may have been applied. Errors: Aborted (lease_ended) for a put with a lease that is
  // no more; nothing was changed then.
  virtual void Commit(Transaction transaction, Done<TransactionResult> done) = 0;

  // Grants a lease and keeps it alive, from every endpoint in turn, until RevokeLease, AbandonLease or kLost.
  // The store ends it `ttl_ms` after the last renewal. `listener` hears nothing before `done`.
  virtual void GrantLease(int64_t ttl_ms, LeaseListener listener, Done<Lease> done) = 0;
  // Ends a lease and its keys. Its listener hears no more. OK for a lease that is no more.
  virtual void RevokeLease(LeaseId lease, DoneStatus done) = 0;
  // Keeps it alive no longer, and asks nobody to end it. Its listener hears no more.
  virtual void AbandonLease(LeaseId lease) = 0;

  // Hears of every change in `range` from revision `from` on, across lost connections and endpoints.
  // REQUIRES: from > 0, usually Listing::revision + 1.
  virtual absl::StatusOr<WatchId> Watch(KeyRange range, Revision from, WatchListener listener) = 0;
  // A running call of the listener goes on; none begins after it has returned to a callback. Unknown ids are
  // ignored.
  virtual void Unwatch(WatchId watch) = 0;

  virtual CoordinationHealth health() const = 0;

  // Calls what waits for an answer, with Cancelled, and waits for running callbacks; none begins afterwards.
  // Leases are abandoned. Idempotent. Not from a callback.
  virtual void Stop() = 0;
};

// Errors: InvalidArgument that says what is over which limit.
absl::Status ValidateRange(const KeyRange& range);
absl::Status ValidateTransaction(const Transaction& transaction);
// Whether `guard` holds of the key as it is; null: absent.
bool Holds(const Guard& guard, const KeyValue* item);

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_COORDINATOR_H_
