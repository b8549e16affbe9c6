// The gRPC door of a compile worker: CompileWorkerService, health and reflection on one address. Start, Drain
// and Stop are called by one thread. Nothing of gRPC is in this header.
#ifndef EPIC_SERVICES_COMPILE_WORKER_RPC_COMPILE_DOOR_H_
#define EPIC_SERVICES_COMPILE_WORKER_RPC_COMPILE_DOOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/rpc/rpc_event.h"
#include "services/worker_api/compiler.h"

namespace epic {

class Credentials;  // common/rpc/credentials.h

struct CompileDoorOptions {
  std::string address = "127.0.0.1:0";             // HOST:PORT; port 0 takes a free one
  std::shared_ptr<const Credentials> credentials;  // null: plain
  size_t max_message_bytes = size_t{16} << 20;     // of a request
  int64_t drain_ms = 10'000;                       // Stop gives running calls so long
  uint64_t id_seed = 0;                            // of the ids of calls that bring none
};

class CompileDoor {
 public:
  virtual ~CompileDoor() = default;
  // Listens at once. `check` says whether a job is sound (core/job_check.h). The compiler, and what `check`
  // uses, outlive the door; `observer` hears of every call when it is over. Errors: Unavailable when the
  // address cannot be bound; InvalidArgument when it is none.
  static absl::StatusOr<std::unique_ptr<CompileDoor>> Start(
      const CompileDoorOptions& options, Compiler* compiler,
      std::function<absl::Status(const CompileJob&)> check, RpcObserver observer = {});
  virtual uint16_t port() const = 0;
  // Turns the health service to NOT_SERVING; calls go on.
  virtual void Drain() = 0;
  // Refuses new calls, waits drain_ms for running ones, cancels the rest. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_COMPILE_WORKER_RPC_COMPILE_DOOR_H_
