// What one store node asks of another about context records: the messages, and the interface over which they
// go. replicator.h answers them and sends them; local_peer.h goes to another node of the same process.
//
// Every call carries a deadline (steady clock of the caller) and answers by its callback at most once, on any
// thread; never where the other side hangs: the caller keeps the deadline itself. A call whose answer is
// an error may have been done, may still be done, and may be done twice: all of them are idempotent but
// Change, which says itself until when it may begin. Where the network fails the error has no code of
// common/status/error.h: one that has is what the other node says. No call blocks.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_PEER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_PEER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/replica_state.h"
#include "services/kv_store/core/rows.h"
#include "services/kv_store/replication/members.h"
#include "services/kv_store/replication/node_row.h"

namespace epic::kv_store {

using TokensPtr = std::shared_ptr<const std::vector<TokenId>>;

// How the node that answers stood when it had done what it was asked.
struct Standing {
  uint64_t session = 0;
  uint64_t epoch = 0;  // of its view
  NodeUp up = NodeUp::kDown;
  bool empty = false;  // its disk does not have what it once promised to keep
  uint64_t beat = 0;
  uint64_t served_at = 0;  // beat, when it served last
};

struct ReplicaItem {
  ContextKey key;
  ReplicaState state;
  TokensPtr tokens;  // may be nullptr
};

// Join these states.
struct SendRequest {
  uint64_t session = 0;  // of the receiver: another one may have been emptied meanwhile, and refuses
  uint64_t beat = 0;     // when the states were read: too old ones are refused
  std::vector<ReplicaItem> items;
};
struct ItemResult {
  // FailedPrecondition: send it again with its token ids.
  absl::Status status;
  // What the receiver knows now, where that overrules what was sent.
  std::optional<ReplicaState> newer;
};
struct SendReply {
  Standing standing;
  std::vector<ItemResult> results;  // of the items, in their order
};

// What of `node` the receiver knows, in key order, without token ids.
struct FetchRequest {
  std::string node;      // empty: of all nodes
  uint64_t session = 0;  // of `node`: refused until the receiver's view shows it up under this one
  std::optional<ContextKey> after;
  uint32_t limit = 256;
};
struct FetchReply {
  Standing standing;
  std::vector<ReplicaItem> items;
  std::optional<ContextKey> next;  // go on after it; nullopt: that was all
};

struct QueryRequest {
  std::vector<ContextKey> keys;
  bool with_tokens = false;
};
struct QueryReply {
  Standing standing;
  // Of the first keys, as many as fit the message, at least one; an empty state: nothing is known.
  std::vector<ReplicaItem> items;
};

// Who has a name, or, with `claim`, may the context have it: asked of the name's home, which asks the others.
struct NameRequest {
  enum class What : uint8_t { kAsk, kClaim, kRelease };
  What what = What::kAsk;
  std::string tenant;
  Digest model_identity;
  std::string name;
  CacheId id;
  std::string home;  // the name's, that asks or is asked
};
struct NameReply {
  Standing standing;
  CacheId holder;  // empty: nobody but `id`
};

// Tell each other the beats.
struct BeatRequest {
  BeatLog beats;
};
struct BeatReply {
  Standing standing;
  BeatLog beats;
};

// Make physically gone what is known to be deleted, of this context at least up to this deletion.
struct EraseRequest {
  ContextKey key;
  Tombstone tombstone;
};
struct EraseReply {
  Standing standing;
};

// A change that a user asked for, sent to the context's home.
struct SetStateChange {
  ContextState state;
  int64_t compile_ms = 0;
  std::string error;
};
struct DeleteChange {};
struct ChangeRequest {
  uint64_t id = 0;  // random: a request that comes twice is done once
  ContextKey key;
  std::variant<NewContext, ContextPatch, DeleteChange, SetStateChange> what;
  int64_t until_unix_ms = 0;  // it does not begin later
};
struct ChangeReply {
  ContextRecord record;                // as it is after the change; of a deletion: empty
  bool changed = false;                // a create made it, a deletion found it
  std::optional<Tombstone> tombstone;  // of a deletion
};

class ReplicaPeer {
 public:
  template <typename Reply>
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  virtual ~ReplicaPeer() = default;
  virtual void Send(SendRequest request, int64_t deadline_ns, Done<SendReply> done) = 0;
  virtual void Fetch(FetchRequest request, int64_t deadline_ns, Done<FetchReply> done) = 0;
  virtual void Query(QueryRequest request, int64_t deadline_ns, Done<QueryReply> done) = 0;
  virtual void Name(NameRequest request, int64_t deadline_ns, Done<NameReply> done) = 0;
  virtual void Beat(BeatRequest request, int64_t deadline_ns, Done<BeatReply> done) = 0;
  virtual void Erase(EraseRequest request, int64_t deadline_ns, Done<EraseReply> done) = 0;
  virtual void Change(ChangeRequest request, int64_t deadline_ns, Done<ChangeReply> done) = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_PEER_H_
