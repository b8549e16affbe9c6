// Makes deleted bytes physically gone on this node, for those who wait for it: one run at a time, which
// serves all that asked before it began. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_NODE_ERASER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_NODE_ERASER_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

class NodeEraser {
 public:
  using Done = std::function<void(absl::Status)>;

  explicit NodeEraser(ReplicaNode* node) : node_(node) {}

  // Calls `done` when what was removed before is gone, or with what the disk says.
  void Erase(Done done) ABSL_LOCKS_EXCLUDED(mu_) {
    {
      MutexLock lock(&mu_);
      waiting_.push_back(std::move(done));
      if (std::exchange(running_, true)) return;
    }
    node_->Post([this] { Run(); });
  }

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mu_) {
    std::vector<Done> served;
    {
      MutexLock lock(&mu_);
      served.swap(waiting_);
      running_ = !served.empty();
    }
    if (served.empty()) return;
    const absl::Status status = node_->store()->Erase();
    for (const Done& done : served) done(status);
    node_->Post([this] { Run(); });
  }

  ReplicaNode* const node_;

  Mutex mu_;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<Done> waiting_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_NODE_ERASER_H_
