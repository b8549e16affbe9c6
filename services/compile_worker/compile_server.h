// A compile worker as a process: model and engine, the core, a store node of another process, doors (gRPC,
// admin HTTP), from the settings to the last call. Owned by main; called by one thread.
#ifndef EPIC_SERVICES_COMPILE_WORKER_COMPILE_SERVER_H_
#define EPIC_SERVICES_COMPILE_WORKER_COMPILE_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/log/log.h"
#include "common/process/part_process.h"

namespace epic {

// Opens the model, then the doors. The store need not be there yet: until it is, compiles fail. Errors: a bad
// model file, bad certificates, no store named, an address that is taken.
absl::StatusOr<std::unique_ptr<PartServer>> StartCompileServer(const Config& config, const Logger& log);

}  // namespace epic

#endif  // EPIC_SERVICES_COMPILE_WORKER_COMPILE_SERVER_H_
