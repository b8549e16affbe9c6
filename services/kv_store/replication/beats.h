// The clock of the cluster, in which it is counted how long nodes are away and tombstones live (node_row.h).
//
// The leader counts a beat when beat_ms have passed during which every group could take changes, and every
// node that is up knows the beat before: so the beats that any two nodes know differ by one at most, and in a
// cluster that was switched off, or lost too many nodes, none passes. Every node forgets tombstones by
// itself.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_BEATS_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_BEATS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

class Beats {
 public:
  explicit Beats(ReplicaNode* node) : node_(node) {}
  // Called every tick_ms, on the executor.
  void Step() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Lead(const MemberView& view) ABSL_LOCKS_EXCLUDED(mu_);

  ReplicaNode* const node_;

  Mutex mu_;
  int64_t last_ns_ ABSL_GUARDED_BY(mu_) = 0;                                         // of the last Step
  int64_t passed_ns_ ABSL_GUARDED_BY(mu_) = 0;                                       // of this beat
  std::map<std::string, std::pair<uint64_t, uint64_t>> known_ ABSL_GUARDED_BY(mu_);  // session and beat
  std::map<std::string, bool> asked_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_BEATS_H_
