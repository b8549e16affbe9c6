// A link worker as a process: model and engine, the core, a store node and compile workers of other
// processes, doors (gRPC, admin HTTP), from the settings to the last call. Owned by main; called by one
// thread.
#ifndef EPIC_SERVICES_LINK_WORKER_LINK_SERVER_H_
#define EPIC_SERVICES_LINK_WORKER_LINK_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/log/log.h"
#include "common/process/part_process.h"

namespace epic {

// Opens the model, then the doors. Store and compile workers need not be there yet: until they are, prompts
// with contexts fail. Errors: a bad model file, bad certificates, no store named, an address that is taken.
absl::StatusOr<std::unique_ptr<PartServer>> StartLinkServer(const Config& config, const Logger& log);

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_LINK_SERVER_H_
