// What a process of a test or a bench serves its objects by: gRPC and UCX at one address, and shm. The real
// ends of UCX and shm; for gRPC a stand-in (source_service.h) of the store's door. Tests and benches only.
#ifndef EPIC_COMMON_TRANSPORT_BENCH_TESTING_PEER_SERVER_H_
#define EPIC_COMMON_TRANSPORT_BENCH_TESTING_PEER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/ucx_settings.h"

namespace epic::transport {

struct PeerServerOptions {
  TestSource* source = nullptr;  // outlives the server
  std::string ip = "127.0.0.1";
  std::string device = "lo";  // that of the address
  int64_t ucx_poll_us = UcxSettings().poll_us;
  std::string shm_path;  // empty: no shm
  std::vector<std::shared_ptr<const Region>> shm_regions;
};

class PeerServer {
 public:
  static absl::StatusOr<std::unique_ptr<PeerServer>> Start(const PeerServerOptions& options);
  // Stops.
  ~PeerServer();
  int grpc_port() const { return grpc_port_; }
  std::string IssueTicket();

 private:
  struct Servers;
  PeerServer();

  const std::unique_ptr<Servers> servers_;
  int grpc_port_ = 0;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_BENCH_TESTING_PEER_SERVER_H_
