// Which callers keep an Attach stream open: what they hold ends with it. Owned by the door; thread-safe.
#ifndef EPIC_SERVICES_KV_STORE_RPC_ATTACHMENTS_H_
#define EPIC_SERVICES_KV_STORE_RPC_ATTACHMENTS_H_

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "common/rpc/rpc_call.h"
#include "epic/v1/kv_store.pb.h"
#include "services/kv_store/core/node/store_node.h"

namespace epic::kv_store {

class Attachments {
 public:
  // Both outlive this. `welcome`: what the stream of every caller begins with.
  Attachments(StoreNode* node, const RpcParts* parts, v1::AttachResponse welcome)
      : node_(node), parts_(parts), welcome_(std::move(welcome)) {}

  // KvStoreService.Attach. The stream frees itself.
  grpc::ServerWriteReactor<v1::AttachResponse>* Attach(grpc::CallbackServerContext* context,
                                                       const v1::AttachRequest& request)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Ends all streams, and those to come.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);

  size_t count() const ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    return attached_.size();
  }

 private:
  class Stream;

  // False: the door drains, or too many are attached.
  bool Add(PeerId peer, std::shared_ptr<Stream> stream) ABSL_LOCKS_EXCLUDED(mu_);
  void Remove(PeerId peer, const Stream* stream) ABSL_LOCKS_EXCLUDED(mu_);

  StoreNode* const node_;
  const RpcParts* const parts_;
  const v1::AttachResponse welcome_;

  mutable Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  // The last stream of each peer.
  absl::flat_hash_map<PeerId, std::shared_ptr<Stream>> attached_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_ATTACHMENTS_H_
