// Keeps the context records of several store nodes the same: what each node runs over its StoreCore. Users'
// changes and reads go in, other nodes' requests too (peer.h); the rules are those that were proved in
// services/kv_store/model/records_model.h, for each context a machine of its own.
//
// What a machine's "all nodes" are. A context lives on its group (members.h): R + 1 nodes, of which R must
// have a change on their disks and every one that is up must have it. Nodes outside never hold it, so the
// group is the whole machine, of R + 1 nodes. What the machines of all contexts share is stricter for one
// than it needs:
//   joining   merged are all members but R - 1, so in any group all others but R - 1 at most (joiner.h)
//   beats     pass while at most one member of all does not serve, so R nodes of every group serve (beats.h);
//             nodes know them to within one, and the bounds in beats have two to spare
//   views     the machine sees who is up at once. Here answers carry the epoch of their view, and only a view
//             as new as all of them acknowledges (changer.h); who is shown down does not serve (Membership)
//   stamps    are hybrid times: later ones than what is acknowledged, since its nodes told; and than what was
//             given up on a node that is down, since that took longer to notice than clocks may differ
//   spreading changes carry all that their node knows, and repair may join any serving or joining node with
//             any other that counts: explored in the model as `spreads`
//
// Thread-safe. Calls return at once; answers come by callback on the executor, and those to a user by the
// deadline of a change. A peer that hangs costs those changes that must reach it, until the view shows it
// down. Stop waits for what runs; what has not been answered by then never is. Listing contexts, finding them
// by name, and objects are not here: they are asked of a node's own StoreCore.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_REPLICATOR_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_REPLICATOR_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/kv_store/replication/beats.h"
#include "services/kv_store/replication/changer.h"
#include "services/kv_store/replication/joiner.h"
#include "services/kv_store/replication/local_peer.h"
#include "services/kv_store/replication/names.h"
#include "services/kv_store/replication/node_eraser.h"
#include "services/kv_store/replication/peer.h"
#include "services/kv_store/replication/repairer.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

struct DeleteResult {
  bool existed = false;
  std::vector<std::string> pending;  // nodes that did not say yet that its bytes are gone
};

enum class EraseMode : uint8_t { kLater, kWait };

class Replicator : public std::enable_shared_from_this<Replicator> {
 public:
  template <typename Reply>
  using Done = ReplicaPeer::Done<Reply>;

  // Errors: those of reading the row about this node.
  static absl::StatusOr<std::shared_ptr<Replicator>> Open(const ReplicatorOptions& options,
                                                          ReplicatorDeps deps);
  ~Replicator() { Stop(); }

  // Joins the others, then serves. Once.
  void Start();
  // Idempotent. Not from one of its own callbacks.
  void Stop() { node_->Stop(); }
  // The Membership has another view.
  void ViewChanged();
  Standing StandingNow() const { return node_->StandingNow(); }
  uint64_t repaired() const { return repairer_.repaired(); }
  uint64_t repair_passes() const { return repairer_.passes(); }

  // --- users. Errors of all: those of KvStore; kInsufficientReplicas, whose message says whether the change
  // may be there later; kDeadline when it was not begun in time.

  void Create(const NewContext& context, Done<CreateResult> done);
  void Update(std::string_view tenant, const CacheId& id, const ContextPatch& patch,
              Done<ContextRecord> done);
  // With kWait it answers when the bytes are gone on every node of the group, or names those that are down or
  // did not answer in time; these erase before they serve again.
  void Delete(std::string_view tenant, const CacheId& id, EraseMode erase, Done<DeleteResult> done);
  void SetState(std::string_view tenant, const CacheId& id, const SetStateChange& state,
                Done<ContextRecord> done);
  // From this node if it holds the context, else from one that does.
  void Get(std::string_view tenant, const CacheId& id, Done<ContextRecord> done);
  void GetTokens(std::string_view tenant, const CacheId& id, Done<TokensPtr> done);

  // --- other nodes

  void HandleSend(SendRequest request, Done<SendReply> done);
  void HandleFetch(FetchRequest request, Done<FetchReply> done);
  void HandleQuery(QueryRequest request, Done<QueryReply> done);
  void HandleName(NameRequest request, Done<NameReply> done);
  void HandleBeat(BeatRequest request, Done<BeatReply> done);
  void HandleErase(EraseRequest request, Done<EraseReply> done);
  void HandleChange(ChangeRequest request, Done<ChangeReply> done);

  ReplicaNode* node() const { return node_.get(); }

 private:
  explicit Replicator(std::shared_ptr<ReplicaNode> node);

  void Tick();
  ChangeRequest RequestFor(ContextKey key) const;
  // Sends a change to the context's home.
  void Route(ChangeRequest request, Done<ChangeReply> done);
  void EraseEverywhere(const ContextKey& key, const Tombstone& tombstone, bool existed,
                       Done<DeleteResult> done);
  void Look(const ContextKey& key, bool with_tokens, Done<ReplicaItem> done);
  // `sure`: whoever was asked before knows nothing of it.
  void LookElsewhere(const ContextKey& key, bool with_tokens, std::vector<std::string> others, bool sure,
                     Done<ReplicaItem> done);

  const std::shared_ptr<ReplicaNode> node_;
  Joiner joiner_;
  Beats beats_;
  Names names_;
  Changer changer_;
  NodeEraser eraser_;
  Repairer repairer_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_REPLICATOR_H_
