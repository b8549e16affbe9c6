// The gRPC door of a link worker: LinkWorkerService, health and reflection on one address. Owns the workers
// on which prompts are begun. Start, Drain and Stop are called by one thread. Nothing of gRPC is in this
// header.
#ifndef EPIC_SERVICES_LINK_WORKER_RPC_LINK_DOOR_H_
#define EPIC_SERVICES_LINK_WORKER_RPC_LINK_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "common/rpc/rpc_event.h"
#include "services/worker_api/linker.h"

namespace epic {

class Credentials;  // common/rpc/credentials.h

struct LinkDoorOptions {
  std::string address = "127.0.0.1:0";             // HOST:PORT; port 0 takes a free one
  std::shared_ptr<const Credentials> credentials;  // null: plain
  size_t max_message_bytes = size_t{16} << 20;     // of a request
  size_t max_stream_buffer_bytes = 256 << 10;      // text that waits for one reader
  uint32_t worker_threads = 8;                     // that begin prompts: objects are fetched there
  uint32_t worker_queue = 256;                     // prompts that wait for one; beyond it queue_full
  int64_t drain_ms = 10'000;                       // Stop gives running calls so long
  uint64_t id_seed = 0;                            // of the ids of calls that bring none
};

class LinkDoor {
 public:
  virtual ~LinkDoor() = default;
  // Listens at once. The linker outlives the door; `observer` hears of every call when it is over. Errors:
  // Unavailable when the address cannot be bound; InvalidArgument when it is none.
  static absl::StatusOr<std::unique_ptr<LinkDoor>> Start(const LinkDoorOptions& options, Linker* linker,
                                                         const Digest& model_identity,
                                                         RpcObserver observer = {});
  virtual uint16_t port() const = 0;
  // Turns the health service to NOT_SERVING; calls go on.
  virtual void Drain() = 0;
  // Refuses new calls, waits drain_ms for running ones, cancels the rest. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_RPC_LINK_DOOR_H_
