// One gRPC server: services, health and reflection on one address. Owned by a door; Listen and Stop are
// called by one thread.
#ifndef EPIC_COMMON_RPC_GRPC_LISTENER_H_
#define EPIC_COMMON_RPC_GRPC_LISTENER_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/rpc/credentials.h"

namespace epic {

struct ListenOptions {
  std::shared_ptr<const Credentials> credentials;  // null: plain
  size_t max_message_bytes = size_t{4} << 20;      // of a request
  // A connection whose client does not answer a ping for so long is closed; 0: by the system's own rules.
  int64_t keepalive_ms = 0;
  uint64_t buffer_bytes_max = 0;  // that gRPC holds for all connections; 0: no bound
};

class GrpcListener {
 public:
  // Once. `address`: HOST:PORT, or unix:PATH of a socket. `services` outlive the listener. Errors:
  // Unavailable when the address cannot be bound; InvalidArgument when it is none.
  absl::Status Listen(const std::string& address, const ListenOptions& options,
                      const std::vector<grpc::Service*>& services);
  uint16_t port() const { return port_; }
  // Turns the health service to NOT_SERVING; calls go on. Any thread, between Listen and Stop.
  void RefuseHealth() { server_->GetHealthCheckService()->SetServingStatus(false); }
  // Refuses new calls, waits `drain_ms` for running ones, cancels the rest. Idempotent.
  void Stop(int64_t drain_ms);

 private:
  std::shared_ptr<const Credentials> credentials_;  // looks at its files as long as the server runs
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

}  // namespace epic

#endif  // EPIC_COMMON_RPC_GRPC_LISTENER_H_
