// A store process: one node with its doors (gRPC, admin HTTP, hand-over socket), from the settings to the
// last call. Owned by main; called by one thread.
#ifndef EPIC_SERVICES_KV_STORE_STORE_SERVER_H_
#define EPIC_SERVICES_KV_STORE_STORE_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/log/log.h"
#include "common/process/part_process.h"

namespace epic::kv_store {

// Opens the store and then its doors: "gRPC", "admin" and "shm", the path of the hand-over socket. Drain also
// tells those who are attached; Stop writes what is queued. Errors: those of EmbeddedStore::Open; bad
// certificates; an address that is taken, or none, with the flag that moves it.
absl::StatusOr<std::unique_ptr<PartServer>> StartStoreServer(const Config& config, const Logger& log);

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_STORE_SERVER_H_
