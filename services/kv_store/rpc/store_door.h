// The gRPC door of a store: KvStoreService, health and reflection on one address.
//
// Owns the server and the workers on which calls that may block run. Start, Drain and Stop are called by one
// thread. Nothing of gRPC is in this header.
#ifndef EPIC_SERVICES_KV_STORE_RPC_STORE_DOOR_H_
#define EPIC_SERVICES_KV_STORE_RPC_STORE_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/rpc/rpc_event.h"
#include "common/storage/kv_store.h"

namespace epic::kv_store {

struct StoreDoorOptions {
  std::string address = "127.0.0.1:8084";       // HOST:PORT, port 0 takes a free one; or unix:PATH
  size_t max_message_bytes = size_t{32} << 20;  // of a request
  uint32_t worker_threads = 8;
  size_t worker_queue = 1024;  // calls that wait for a worker; one more is refused with queue_full
  int64_t drain_ms = 10'000;   // Stop gives running calls so long
  uint64_t id_seed = 0;        // of the ids of calls that bring none
};

class StoreDoor {
 public:
  virtual ~StoreDoor() = default;
  // Listens at once. `store` and `clock` outlive the door; `observer` hears of every call when it is over.
  // Errors: Unavailable when the address cannot be bound; InvalidArgument when it is none.
  static absl::StatusOr<std::unique_ptr<StoreDoor>> Start(const StoreDoorOptions& options, KvStore* store,
                                                          const Clock* clock, RpcObserver observer = {});
  virtual uint16_t port() const = 0;
  // Turns the health service to NOT_SERVING; calls go on.
  virtual void Drain() = 0;
  // Refuses new calls, waits drain_ms for running ones, cancels the rest. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_STORE_DOOR_H_
