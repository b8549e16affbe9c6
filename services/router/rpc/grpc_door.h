// The gRPC door: ContextService, ChatService, ModelService, health and reflection on one listener.
//
// Owns the server and the workers for calls that may block. Start and Stop are called by one thread.
// Nothing of gRPC is in this header.
#ifndef EPIC_SERVICES_ROUTER_RPC_GRPC_DOOR_H_
#define EPIC_SERVICES_ROUTER_RPC_GRPC_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/rpc/rpc_event.h"
#include "services/router/core/api.h"

namespace epic {

class Credentials;  // common/rpc/credentials.h

struct GrpcDoorOptions {
  std::string address = "127.0.0.1:8081";          // HOST:PORT; port 0 takes a free one
  std::shared_ptr<const Credentials> credentials;  // null: plain
  size_t max_message_bytes = 16 << 20;             // of a request
  size_t max_stream_buffer_bytes = 4 << 20;        // text that waits for one client
  int64_t drain_ms = 10'000;                       // Stop gives running calls so long
  uint32_t worker_threads = 4;                     // for calls that may block
  uint32_t worker_queue = 256;                     // such calls that wait; beyond it kQueueFull
  uint64_t id_seed = 0;                            // of the ids of calls that bring none
};

class GrpcDoor {
 public:
  virtual ~GrpcDoor() = default;
  // Listens at once. `observer` hears of every call of our services when it is over; not of health and
  // reflection, nor of what gRPC refuses by itself. Errors: Unavailable when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<GrpcDoor>> Start(const GrpcDoorOptions& options, const Apis& apis,
                                                         const Clock* clock, RpcObserver observer = {});
  virtual uint16_t port() const = 0;
  // Turns the health service to NOT_SERVING; calls go on. Any thread, before Stop.
  virtual void Drain() = 0;
  // Refuses new calls, waits drain_ms for running ones, cancels the rest. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_RPC_GRPC_DOOR_H_
