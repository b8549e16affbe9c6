// The gRPC door of a store: KvStoreService, health and reflection on one address.
//
// Owns the server, the workers on which calls that may block run, and the timer that sweeps the node. Its
// time is the system's: deadlines and stalls of real connections; leases have the node's clock. Start, Drain
// and Stop are called by one thread. Nothing of gRPC is in this header.
#ifndef EPIC_SERVICES_KV_STORE_RPC_STORE_DOOR_H_
#define EPIC_SERVICES_KV_STORE_RPC_STORE_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/rpc_event.h"
#include "common/storage/kv_store.h"
#include "services/kv_store/core/node/store_node.h"

namespace epic {
class Credentials;  // common/rpc/credentials.h
}

namespace epic::kv_store {

// Whether an object that was asked for was there, and else why not. Called on a worker; must not block.
using LookupObserver = std::function<void(bool hit, MissCause cause)>;

// By which ways besides this door the bytes of leased objects may be had: told to callers, who are
// authenticated here.
struct OtherWays {
  std::string boot_id;           // of this host (common/storage/shm/host.h)
  std::string hand_over_socket;  // of the memory, for processes of this host and user; empty: none
  // A ticket for one UCX lane; must not block. Empty: nothing is served over UCX.
  std::function<absl::StatusOr<std::string>()> issue_lane_ticket;
};

struct StoreDoorOptions {
  std::string address = "127.0.0.1:8084";          // HOST:PORT, port 0 takes a free one; or unix:PATH
  std::shared_ptr<const Credentials> credentials;  // null: plain
  size_t max_message_bytes = size_t{32} << 20;     // of a request
  uint32_t worker_threads = 8;
  size_t worker_queue = 1024;  // calls that wait for a worker; one more is refused with queue_full
  int64_t drain_ms = 10'000;   // Stop gives running calls so long
  uint64_t id_seed = 0;        // of the ids of calls that bring none
  uint32_t streams_max = 256;  // of layers and events, at a time; one more is refused with queue_full
  int64_t stall_ms = 10'000;   // a stream whose other end stops for so long is cut off
  // A connection whose client does not answer pings for so long is dead.
  int64_t keepalive_ms = 10'000;
  uint64_t buffer_bytes_max = uint64_t{512} << 20;  // of gRPC, for all connections
  int64_t sweep_ms = 1000;  // between two looks for leases and reservations that are over
  OtherWays other_ways;
};

struct StoreDoorObservers {
  RpcObserver on_call;  // hears of every call when it is over
  LookupObserver on_lookup;
  std::function<void(uint64_t bytes)> on_layer_bytes;  // hears of what ReadLayers sent; must not block
};

class StoreDoor {
 public:
  virtual ~StoreDoor() = default;
  // Listens at once, and sweeps the node. The node outlives the door. Errors: Unavailable when the address
  // cannot be bound; InvalidArgument when it is none.
  static absl::StatusOr<std::unique_ptr<StoreDoor>> Start(const StoreDoorOptions& options, StoreNode* node,
                                                          StoreDoorObservers observers = {});
  virtual uint16_t port() const = 0;
  // For gauges: streams of layers and events, and callers that are attached.
  virtual uint32_t streams() const = 0;
  virtual size_t attached() const = 0;
  // Turns the health service to NOT_SERVING and ends the streams by which callers are attached and follow the
  // node; calls go on.
  virtual void Drain() = 0;
  // Refuses new calls, waits drain_ms for running ones, cancels the rest. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_STORE_DOOR_H_
