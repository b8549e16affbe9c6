// A ReplicaPeer to a Replicator of the same process: its requests run on that node's executor. One that was
// stopped, or is gone, never answers, as a dead machine. Thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_LOCAL_PEER_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_LOCAL_PEER_H_

#include <memory>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "services/kv_store/replication/peer.h"

namespace epic::kv_store {

class Replicator;

class LocalPeer final : public ReplicaPeer {
 public:
  // Where requests go from now on.
  void Bind(std::weak_ptr<Replicator> target) ABSL_LOCKS_EXCLUDED(mu_);

  void Send(SendRequest request, int64_t deadline_ns, Done<SendReply> done) override;
  void Fetch(FetchRequest request, int64_t deadline_ns, Done<FetchReply> done) override;
  void Query(QueryRequest request, int64_t deadline_ns, Done<QueryReply> done) override;
  void Name(NameRequest request, int64_t deadline_ns, Done<NameReply> done) override;
  void Beat(BeatRequest request, int64_t deadline_ns, Done<BeatReply> done) override;
  void Erase(EraseRequest request, int64_t deadline_ns, Done<EraseReply> done) override;
  void Change(ChangeRequest request, int64_t deadline_ns, Done<ChangeReply> done) override;

 private:
  template <typename Request, typename Reply>
  void Pass(void (Replicator::*handle)(Request, Done<Reply>), Request request, Done<Reply> done)
      ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  std::weak_ptr<Replicator> target_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_LOCAL_PEER_H_
