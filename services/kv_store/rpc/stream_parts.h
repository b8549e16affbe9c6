// What the streams of one store door share.
#ifndef EPIC_SERVICES_KV_STORE_RPC_STREAM_PARTS_H_
#define EPIC_SERVICES_KV_STORE_RPC_STREAM_PARTS_H_

#include <atomic>
#include <cstdint>
#include <functional>

#include "common/base/timers.h"
#include "common/rpc/rpc_call.h"
#include "services/kv_store/core/node/store_node.h"

namespace epic::kv_store {

// Outlives the streams.
struct StreamParts {
  StoreNode* node = nullptr;
  const RpcParts* rpc = nullptr;
  Timers* timers = nullptr;
  int64_t stall_ms = 0;
  uint32_t streams_max = 0;
  std::atomic<uint32_t>* streams = nullptr;            // open now
  std::atomic<bool>* draining = nullptr;               // streams without an end of their own end
  std::function<void(uint64_t bytes)> on_layer_bytes;  // that a reader has taken; may be empty
};

// A place among the streams of the door. Counted from the constructor to the destructor.
class StreamPlace {
 public:
  explicit StreamPlace(const StreamParts* parts) : parts_(parts) {
    granted_ = parts_->streams->fetch_add(1) < parts_->streams_max;
  }
  ~StreamPlace() { parts_->streams->fetch_sub(1); }
  StreamPlace(const StreamPlace&) = delete;
  StreamPlace& operator=(const StreamPlace&) = delete;
  bool granted() const { return granted_; }

 private:
  const StreamParts* const parts_;
  bool granted_ = false;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_STREAM_PARTS_H_
