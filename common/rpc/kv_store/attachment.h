// A client's Attach stream at a store node, and the signs of life of what it writes: a thread each. Owned by
// RemoteKvStore; thread-safe. When the stream ends, what the client holds at the node is over; it attaches
// anew as soon as the node is there.
#ifndef EPIC_COMMON_RPC_KV_STORE_ATTACHMENT_H_
#define EPIC_COMMON_RPC_KV_STORE_ATTACHMENT_H_

#include <grpcpp/client_context.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/rpc/kv_store/object_client.h"
#include "common/rpc/kv_store/store_channel.h"

namespace epic {

class Attachment {
 public:
  // `heartbeat_ms`: between two signs of life of what is being written.
  Attachment(std::shared_ptr<StoreChannel> channel, ObjectClient* objects, int64_t heartbeat_ms);
  ~Attachment() { Stop(); }
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  // What the node said of itself when this was attached; all empty: it is not, or not yet.
  struct Node {
    uint64_t incarnation = 0;
    // Where it hands its memory to processes of its host; empty: nowhere.
    std::string boot_id;
    std::string hand_over_socket;
  };
  Node node() const ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until this is attached to that life of the node, for up to `ms`.
  void AwaitLife(uint64_t incarnation, int64_t ms) const ABSL_LOCKS_EXCLUDED(mu_);

  void KeepAlive(const std::string& token) ABSL_LOCKS_EXCLUDED(mu_);
  void LetGo(const std::string& token) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the stream: all that the client holds ends. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void AttachLoop();
  void HeartbeatLoop();
  // False when it stops.
  bool Pause(int64_t ms) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<StoreChannel> channel_;
  ObjectClient* const objects_;
  const int64_t heartbeat_ms_;

  mutable Mutex mu_;
  CondVar changed_;
  mutable CondVar told_;  // of node_
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  Node node_ ABSL_GUARDED_BY(mu_);
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mu_) = nullptr;  // of the stream
  std::set<std::string> tokens_ ABSL_GUARDED_BY(mu_);

  std::thread attacher_;  // last: use all of the above
  std::thread heart_;
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_ATTACHMENT_H_
