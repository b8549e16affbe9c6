// Puts back what a serving node of a group lacks of a context: a record after a change that was given up, or
// after its disk was lost; a later value. The leader goes through what each serving node holds, page by page,
// at a bounded rate, and joins the states of a group where they differ; records only, objects are compiled
// again when somebody asks for them. A copy under way for longer than a change may be is refused by the
// receiver, and so is one for a session of the receiver that is over.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_REPAIRER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_REPAIRER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

class Repairer {
 public:
  explicit Repairer(ReplicaNode* node) : node_(node) {}
  // Called every tick_ms, on the executor.
  void Step() ABSL_LOCKS_EXCLUDED(mu_);
  // Of states that were sent and joined.
  uint64_t repaired() const { return repaired_.load(); }
  // How often all nodes were gone through.
  uint64_t passes() const { return passes_.load(); }

 private:
  // One page of one node, compared with the others.
  struct Page {
    std::string from;
    Standing standing;
    std::vector<ReplicaItem> items;
    size_t left = 1;  // calls under way, and one for the page itself
  };
  using PagePtr = std::shared_ptr<Page>;

  void Compare(const PagePtr& page) ABSL_LOCKS_EXCLUDED(mu_);
  void CompareWith(const PagePtr& page, const Member& member, std::vector<size_t> items)
      ABSL_LOCKS_EXCLUDED(mu_);
  void SendMissing(const PagePtr& page, const std::string& to, uint64_t session,
                   std::vector<ReplicaItem> items, std::vector<ContextKey> wanted) ABSL_LOCKS_EXCLUDED(mu_);
  void Send(const PagePtr& page, const std::string& to, SendRequest request) ABSL_LOCKS_EXCLUDED(mu_);
  void Leave(const PagePtr& page) ABSL_LOCKS_EXCLUDED(mu_);
  void NextNode() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  ReplicaNode* const node_;
  std::atomic<uint64_t> repaired_{0};
  std::atomic<uint64_t> passes_{0};

  Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  size_t at_ ABSL_GUARDED_BY(mu_) = 0;  // member
  std::optional<ContextKey> after_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_REPAIRER_H_
