// Erasures that a client waits for at a store node: calls that may take minutes, without a thread for each.
// Owned by RemoteKvStore. Thread-safe; answers come on gRPC's threads.
#ifndef EPIC_COMMON_RPC_KV_STORE_ERASE_CALLS_H_
#define EPIC_COMMON_RPC_KV_STORE_ERASE_CALLS_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/rpc/kv_store/store_channel.h"
#include "common/storage/kv_store.h"

namespace epic {

class EraseCalls {
 public:
  // `wait_ms`: the deadline of each call.
  EraseCalls(std::shared_ptr<StoreChannel> channel, int64_t wait_ms)
      : channel_(std::move(channel)), wait_ms_(wait_ms) {}
  // Cancels what runs, and waits for its end: then the node is pending.
  ~EraseCalls();
  EraseCalls(const EraseCalls&) = delete;
  EraseCalls& operator=(const EraseCalls&) = delete;

  // Calls `erased` once, as KvStore::EraseContext does. The node is told by its address: also where it did
  // not answer.
  void Start(std::string_view tenant, const CacheId& id, ErasedDone erased) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Call;
  void End(Call* call, const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<StoreChannel> channel_;
  const int64_t wait_ms_;

  Mutex mu_;
  CondVar ended_;
  std::set<Call*> running_ ABSL_GUARDED_BY(mu_);
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_KV_STORE_ERASE_CALLS_H_
