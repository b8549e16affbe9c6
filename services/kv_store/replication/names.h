// Names are unique per tenant and model across nodes. The home of a name, the first serving node in the
// rendezvous order of the name, lets one context at a time claim it, and asks every serving node who has it:
// a live record, or a change under way here. Every live record is on a node that serves, so a granted claim
// is of a free name. Under split views two homes may grant at the same time only what neither coordinator had
// begun; then the later claim keeps the name (record_table.h).
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_NAMES_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_NAMES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "services/kv_store/replication/replica_node.h"

namespace epic::kv_store {

class Names {
 public:
  using Done = ReplicaPeer::Done<NameReply>;

  explicit Names(ReplicaNode* node) : node_(node) {}

  // What another node, or this one, asks of this node.
  void Handle(NameRequest request, Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // For a change that this node coordinates. Errors: kNameInUse; Unavailable when nobody can tell.
  void Claim(NameRequest request, std::function<void(absl::Status)> done) ABSL_LOCKS_EXCLUDED(mu_);
  void Release(NameRequest request) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  using Key = std::tuple<std::string, Digest, std::string>;  // tenant, model identity, name
  struct Claimed {
    CacheId id;
    int64_t until_ns = 0;
    int times = 0;         // how often, by this context
    std::string home;      // that was asked
    bool granted = false;  // by it
  };
  using Claims = std::map<Key, Claimed>;

  static Key KeyOf(const NameRequest& request) {
    return {request.tenant, request.model_identity, request.name};
  }
  // Another's claim; empty: none, and it is now that of `id`.
  CacheId Take(const NameRequest& request, Claims* claims) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void Drop(const NameRequest& request, Claims* claims);
  NameReply HolderHere(const NameRequest& request) ABSL_LOCKS_EXCLUDED(mu_);
  void AskAll(const NameRequest& request, Done done);
  // nullopt: nobody serves.
  std::optional<std::string> HomeOf(const NameRequest& request) const;

  ReplicaNode* const node_;

  Mutex mu_;
  Claims granted_ ABSL_GUARDED_BY(mu_);  // as the home
  Claims own_ ABSL_GUARDED_BY(mu_);      // of changes that this node coordinates
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_NAMES_H_
