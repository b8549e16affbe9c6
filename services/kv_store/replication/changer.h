// Changes of contexts that this node coordinates, as the home of the context: create, change, deletion,
// state.
//
// A change is done here first, then what this node knows of the context is joined by every other node of the
// group that is up, serving or joining. It is acknowledged when `replicas` of them, this one included, have
// it on a disk that was not lost, and every one that is up by then has it. That is read off a view no older
// than any answer: a node that joined meanwhile fetched from the one that answered after it had the change,
// or is in the view and has it to answer itself. A deletion with fewer than `replicas` nodes serving, and any
// other change but a create with durability `one`, is refused before anything is done.
//
// Whoever knows a later life, or a later value of a field, says so in its answer; it is joined here, and the
// change is made again on top, so that an acknowledged change has the greatest stamp. A change that is given
// up may be there later: on this node it is. Changes of one context are made one at a time.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_CHANGER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_CHANGER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/kv_store/replication/names.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

class Changer {
 public:
  using Done = ReplicaPeer::Done<ChangeReply>;

  Changer(ReplicaNode* node, Names* names) : node_(node), names_(names) {}

  // Errors: kInsufficientReplicas, before or after it was begun, as the message says; kDeadline, kQueueFull
  // and Aborted (another node is to coordinate it) before; those of KvStore for such a change. A request that
  // came before is not answered.
  void Begin(ChangeRequest request, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // The view has changed.
  void Reconsider() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What one other node has of the change as it is now.
  struct Progress {
    uint64_t applied_session = 0;  // 0: it has not answered
    bool empty = false;
    bool asked = false;
    bool wants_tokens = false;
    int64_t next_ns = 0;
  };
  struct Change {
    ChangeRequest request;
    Done done;
    int64_t deadline_ns = 0;
    uint64_t beat = 0;  // when it began
    size_t needed = 0;  // disks
    TokensPtr tokens;   // of a create
    // By one task at a time, while it is being made here.
    std::optional<NameRequest> name;  // that is claimed for it
    bool found = false;               // a create made it, a deletion found it
    // Under mu_ from here on.
    int round = 0;  // how often it was made here
    bool making = true;
    bool ended = false;
    ReplicaItem item;
    ChangeReply reply;
    std::map<std::string, Progress> others;
    uint64_t epoch = 0;  // the greatest of the answers
    absl::Status last_error;
  };
  using ChangePtr = std::shared_ptr<Change>;
  struct Sending {
    std::string to;
    SendRequest request;
  };

  void Start(const ChangePtr& change);
  absl::Status CheckPlace(const ChangeRequest& request, size_t* needed) const;
  // A member of the group that is down may have what a change that was given up left there.
  bool SomeDown(const MemberView& view, const ContextKey& key) const;
  void LookElsewhere(const ChangePtr& change);
  void Adopt(Change* change, const QueryReply& reply);
  void ClaimName(const ChangePtr& change);
  void Make(const ChangePtr& change) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status MakeHere(Change* change, ChangeReply* reply);
  absl::Status DeleteHere(Change* change, ChangeReply* reply);
  void Go(const ChangePtr& change) ABSL_LOCKS_EXCLUDED(mu_);
  // What is to be sent now. True: it is done.
  bool Consider(const MemberView& view, const ChangePtr& change, std::vector<Sending>* sendings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(const ChangePtr& change, int round, Sending sending);
  void Answered(const ChangePtr& change, int round, const std::string& from,
                const absl::StatusOr<SendReply>& reply) ABSL_LOCKS_EXCLUDED(mu_);
  void MakeAgain(const ChangePtr& change, const ReplicaState& newer);
  void KeepTime(const ChangePtr& change);
  // With what it is given up for, if that is empty.
  void End(const ChangePtr& change, std::optional<absl::Status> status) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status GivenUp(const Change& change) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ReplicaNode* const node_;
  Names* const names_;

  Mutex mu_;
  // The first of each context is being made.
  std::map<ContextKey, std::deque<ChangePtr>> changes_ ABSL_GUARDED_BY(mu_);
  size_t under_way_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, int64_t> seen_ ABSL_GUARDED_BY(mu_);  // ids of requests, and until when they may come
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_CHANGER_H_
