// A store process: one node with its doors (gRPC, admin HTTP, hand-over socket), from the settings to the
// last call. Owned by main; Start, Drain and Stop are called by one thread.
#ifndef EPIC_SERVICES_KV_STORE_STORE_SERVER_H_
#define EPIC_SERVICES_KV_STORE_STORE_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "common/log/log.h"

namespace epic::kv_store {

// Where a running store listens.
struct StoreAddresses {
  std::string grpc, admin;  // HOST:PORT
  std::string shm;          // path of the socket
};

class StoreServer {
 public:
  virtual ~StoreServer() = default;
  // Opens the store and then its doors. `clock` outlives the server. Errors: those of EmbeddedStore::Open; an
  // address that is taken, or none, with the flag that moves it.
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const Config& config, Clock* clock,
                                                            const Logger& log);
  virtual StoreAddresses addresses() const = 0;
  // Says so on /health and to those who are attached; calls go on.
  virtual void Drain() = 0;
  // Waits for running calls, at most deadlines.drain_ms, and writes what is queued. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_STORE_SERVER_H_
