// One store node as one of several: its standing, the row about itself on its disk, and how work and calls to
// other nodes are run. The parts of a Replicator (replicator.h) share one and hold the rules; there are none
// of records here.
//
// Thread-safe. Tasks run on the executor, none after Stop, which waits for those under way; each call to a
// peer ends at its deadline, whatever the peer does, so a hung one holds nothing but its own call.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_REPLICA_NODE_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_REPLICA_NODE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/timers.h"
#include "services/kv_store/core/store_core.h"
#include "services/kv_store/replication/members.h"
#include "services/kv_store/replication/node_row.h"
#include "services/kv_store/replication/peer.h"

namespace epic::kv_store {

struct ReplicatorOptions {
  std::string name;  // of this node among the members
  Placement placement;
  int64_t call_timeout_ms = 2'000;     // of one call to a peer
  int64_t change_timeout_ms = 10'000;  // of a change that a user asked for
  int64_t erase_timeout_ms = 600'000;  // of making deleted bytes physically gone on one node
  int64_t retry_ms = 100;
  int64_t tick_ms = 100;
  // Nodes away for away_beats return without records; a change or a copy on its way is void after
  // change_beats; a tombstone lives tombstone_beats. Nodes know the beat to within one.
  // REQUIRES: tombstone_beats >= away_beats + change_beats + 2, change_beats >= 2.
  int64_t beat_ms = 3'600'000;
  uint64_t away_beats = 164;
  uint64_t change_beats = 2;
  uint64_t tombstone_beats = 168;
  uint32_t most_changes = 1024;             // under way at a time; more are refused
  uint32_t page = 256;                      // contexts of a message
  uint64_t page_bytes = uint64_t{4} << 20;  // of token ids in a message, but for a single context's
  uint32_t repaired_per_s = 1000;           // contexts that the leader looks at
};

// All outlive the node, but for the peers.
struct ReplicatorDeps {
  StoreCore* store = nullptr;  // with forgets_tombstones = false
  Membership* membership = nullptr;
  Executor* executor = nullptr;
  Timers* timers = nullptr;
  const Clock* clock = nullptr;
  std::map<std::string, std::shared_ptr<ReplicaPeer>> peers;  // every other member, by name
  uint64_t seed = 0;                                          // of sessions: another one at every start
};

class ReplicaNode : public std::enable_shared_from_this<ReplicaNode> {
 public:
  // Errors: those of reading the row about this node.
  static absl::StatusOr<std::shared_ptr<ReplicaNode>> Open(const ReplicatorOptions& options,
                                                           const ReplicatorDeps& deps);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

  const ReplicatorOptions& options() const { return options_; }
  StoreCore* store() const { return deps_.store; }
  std::shared_ptr<const MemberView> View() const { return deps_.membership->View(); }
  const std::string& name() const { return options_.name; }
  int64_t NowNs() const { return deps_.clock->SteadyNs(); }
  int64_t NowUnixMs() const { return deps_.clock->UnixMs(); }
  uint64_t Random() ABSL_LOCKS_EXCLUDED(mu_);

  // Runs the task on the executor, unless stopped.
  void Post(std::function<void()> task);
  void After(int64_t ms, std::function<void()> task);

  // Calls `done` by Post, exactly once unless stopped. Errors: those of the peer; Unavailable, without a code
  // of ours, when it does not answer in time or is none.
  template <typename Request, typename Reply>
  void Call(const std::string& node, void (ReplicaPeer::*method)(Request, int64_t, ReplicaPeer::Done<Reply>),
            Request request, int64_t timeout_ms, std::function<void(absl::StatusOr<Reply>)> done);

  // --- its standing

  // Takes part under a new session, and does not serve.
  void BeginSession() ABSL_LOCKS_EXCLUDED(mu_);
  void BeginServing() ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t session() const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether this node answers for what it holds: it serves, and its own view shows that. Asked after the
  // answer was read, too.
  bool MayServe() const;
  bool MayServe(const MemberView& view) const ABSL_LOCKS_EXCLUDED(mu_);
  // Whether its view shows its session up.
  bool IsUp(const MemberView& view) const;
  Standing StandingNow() const ABSL_LOCKS_EXCLUDED(mu_);

  NodeRow row() const ABSL_LOCKS_EXCLUDED(mu_);
  // Writes the changed row, synced. Errors: those of the disk; then nothing changed.
  absl::Status UpdateRow(const std::function<void(NodeRow*)>& change) ABSL_LOCKS_EXCLUDED(row_mu_, mu_);
  // What another node knows of beats. While this node serves they count as served.
  absl::Status Learn(const BeatLog& beats);
  bool IsTooOld(uint64_t beat) const { return row().beats.beat >= beat + options_.change_beats; }
  // Whether one that stood like this may lack, or still have, what was removed and forgotten since.
  bool IsOverdue(const Standing& standing, uint64_t beat) const {
    return standing.up != NodeUp::kServing && !standing.empty &&
           beat >= standing.served_at + options_.away_beats;
  }

 private:
  ReplicaNode(const ReplicatorOptions& options, const ReplicatorDeps& deps, NodeRow row);
  bool Enter() ABSL_LOCKS_EXCLUDED(mu_);
  void Leave() ABSL_LOCKS_EXCLUDED(mu_);

  const ReplicatorOptions options_;
  const ReplicatorDeps deps_;

  // Held while the row is written.
  Mutex row_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable Mutex mu_;
  CondVar left_;
  Rng rng_ ABSL_GUARDED_BY(mu_);
  NodeRow row_ ABSL_GUARDED_BY(mu_);
  uint64_t session_ ABSL_GUARDED_BY(mu_) = 0;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  int running_ ABSL_GUARDED_BY(mu_) = 0;
};

template <typename Request, typename Reply>
void ReplicaNode::Call(const std::string& node,
                       void (ReplicaPeer::*method)(Request, int64_t, ReplicaPeer::Done<Reply>),
                       Request request, int64_t timeout_ms, std::function<void(absl::StatusOr<Reply>)> done) {
  const auto peer = deps_.peers.find(node);
  if (peer == deps_.peers.end()) {
    Post([done = std::move(done)] { done(absl::UnavailableError("no such peer")); });
    return;
  }
  const int64_t deadline_ns = NowNs() + timeout_ms * 1'000'000;
  // The peer and the deadline both may end it.
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  const auto finish = [self = shared_from_this(), ended, done](absl::StatusOr<Reply> reply) {
    if (ended->exchange(true)) return;
    self->Post([done, reply = std::move(reply)] { done(reply); });
  };
  const TimerId timer = deps_.timers->At(
      deadline_ns, [finish] { finish(absl::UnavailableError("a store node did not answer in time")); });
  const auto answered = [finish, timers = deps_.timers, timer](absl::StatusOr<Reply> reply) {
    timers->Cancel(timer);
    finish(std::move(reply));
  };
  ((*peer->second).*method)(std::move(request), deadline_ns, answered);
}

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_REPLICA_NODE_H_
