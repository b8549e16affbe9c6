// How a node comes back: it takes part in changes under a new session, learns the beat, merges what the
// others hold, makes what was deleted meanwhile physically gone, and only then serves. One that was away for
// too long first forgets every record: it may have some that were deleted and forgotten since.
//
// Enough others: any group has `replicas` disks with what was acknowledged, so it is enough to have merged
// all members but replicas - 1. A node without its disk was one of those disks itself and asks all; of two
// without theirs, as in a new cluster, neither waits for the other. Only of those who have something to tell
// is anything merged, and only they count to a node that has its disk: a node that serves, or one that joins
// with its disk and was not away for too long. So the beat comes first, from as many others; among them, or
// this node itself, is one that served in the beat before at the latest.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_JOINER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_JOINER_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

class Joiner {
 public:
  explicit Joiner(ReplicaNode* node) : node_(node) {}

  // Goes on with what is to be done, on the executor. `again`: asks those anew, too, who had nothing to tell;
  // now and then.
  void Step(bool again) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What is merged of one other node, page by page.
  struct Run {
    std::string from;
    uint64_t session = 0;       // of this node
    uint64_t from_session = 0;  // 0: not known yet
    std::optional<ContextKey> after;
    std::vector<ContextKey> wanted;  // of the page, without token ids here yet
    FetchReply page;
  };
  using RunPtr = std::shared_ptr<Run>;

  bool KeepSession(const MemberView& view) ABSL_LOCKS_EXCLUDED(mu_);
  // False: the beat is not known yet.
  bool AskForBeats(const MemberView& view) ABSL_LOCKS_EXCLUDED(mu_);
  void StartRuns(const MemberView& view, bool again) ABSL_LOCKS_EXCLUDED(mu_);
  void FetchPage(const RunPtr& run);
  void MergePage(const RunPtr& run, FetchReply reply);
  void FetchTokens(const RunPtr& run);
  void EndPage(const RunPtr& run);
  void EndRun(const RunPtr& run, bool merged) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Merge(const ReplicaItem& item, const std::vector<TokenId>* tokens);
  void TryServe(const MemberView& view) ABSL_LOCKS_EXCLUDED(mu_);
  bool HasEnough(const MemberView& view) ABSL_LOCKS_EXCLUDED(mu_);
  // Where the disk is not whole: removes what it holds nevertheless.
  absl::Status BeginsEmpty();
  absl::Status Empty();

  ReplicaNode* const node_;

  Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;  // a Step is under way
  bool began_ ABSL_GUARDED_BY(mu_) = false;
  bool seen_ ABSL_GUARDED_BY(mu_) = false;  // the view has shown the session
  bool serves_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::string> asked_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Standing> standings_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> running_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Standing> merged_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_JOINER_H_
