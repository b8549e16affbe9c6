// The admin gRPC door: AdminService, health and reflection on a listener of its own.
//
// Owns the server and one worker. Start and Stop are called by one thread. Whoever reaches the address may
// call it: it belongs on loopback. Nothing of gRPC is in this header.
#ifndef EPIC_SERVICES_ROUTER_RPC_ADMIN_DOOR_H_
#define EPIC_SERVICES_ROUTER_RPC_ADMIN_DOOR_H_

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

struct AdminDoorOptions {
  std::string address = "127.0.0.1:8083";          // HOST:PORT; port 0 takes a free one
  std::shared_ptr<const Credentials> credentials;  // null: plain
  size_t max_message_bytes = 64 << 10;             // of a request
  int64_t drain_ms = 1000;                         // Stop gives running calls so long
  uint64_t id_seed = 0;                            // of the ids of calls that bring none
};

class AdminDoor {
 public:
  virtual ~AdminDoor() = default;
  // Listens at once. `admin` and `clock` outlive the door; `observer` hears of every call when it is over.
  // Errors: Unavailable when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminDoor>> Start(const AdminDoorOptions& options, AdminApi* admin,
                                                          const Clock* clock, RpcObserver observer = {});
  virtual uint16_t port() const = 0;
  // Refuses new calls, waits drain_ms for running ones, cancels the rest. Idempotent.
  virtual void Stop() = 0;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_RPC_ADMIN_DOOR_H_
