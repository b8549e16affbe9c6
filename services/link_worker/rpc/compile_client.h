// Compile workers of other processes as a Compiler: one call for each Ensure, to the worker that the object's
// id points at, so that whoever asks for the same object asks the same worker; to the next one when it cannot
// be reached. What was compiled is then read from the store.
//
// Thread-safe; nothing blocks but Stop. The executor reads from the store.
#ifndef EPIC_SERVICES_LINK_WORKER_RPC_COMPILE_CLIENT_H_
#define EPIC_SERVICES_LINK_WORKER_RPC_COMPILE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/executor.h"
#include "common/storage/kv_store.h"
#include "services/worker_api/compiler.h"

namespace epic {

class Credentials;  // common/rpc/credentials.h

struct CompileClientOptions {
  std::vector<std::string> workers;                // HOST:PORT; none: Ensure fails
  std::shared_ptr<const Credentials> credentials;  // null: plain
  int64_t call_ms = 600'000;                       // deadline of one compile, the worker's queue included
};

class CompileClient : public Compiler {
 public:
  // Connects when it is first used. Store and executor outlive the client. Errors of `done`, besides
  // Compiler's: kLoading with an advice when to try again, when no worker can be reached.
  static std::unique_ptr<CompileClient> Make(const CompileClientOptions& options, KvStore* store,
                                             Executor* executor);
  // Refuses new work, cancels what runs (kDraining), detached compiles included, and waits for gRPC.
  // Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_RPC_COMPILE_CLIENT_H_
