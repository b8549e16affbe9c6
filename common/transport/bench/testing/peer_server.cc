#include "common/transport/bench/testing/peer_server.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "common/status/status_macros.h"
#include "common/storage/shm/server.h"
#include "common/transport/bench/testing/arena_leases.h"
#include "common/transport/grpc/testing/source_service.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {

struct PeerServer::Servers {
  std::unique_ptr<ArenaLeases> leases;
  std::unique_ptr<shm::Server> shm;
  std::unique_ptr<SourceService> service;
  std::unique_ptr<grpc::Server> grpc;
  std::unique_ptr<UcxNode> ucx;
};

PeerServer::PeerServer() : servers_(std::make_unique<Servers>()) {}

PeerServer::~PeerServer() {
  if (servers_->grpc != nullptr) servers_->grpc->Shutdown(std::chrono::system_clock::now());
}

absl::StatusOr<std::unique_ptr<PeerServer>> PeerServer::Start(const PeerServerOptions& options) {
  std::unique_ptr<PeerServer> server(new PeerServer());
  Servers& servers = *server->servers_;
  if (!options.shm_path.empty()) {
    servers.leases = std::make_unique<ArenaLeases>(*options.source, options.shm_regions);
    EPIC_ASSIGN_OR_RETURN(servers.shm, shm::Server::Start({.path = options.shm_path,
                                                           .arena_fd = servers.leases->fd(),
                                                           .arena_bytes = servers.leases->size(),
                                                           .incarnation = options.source->incarnation()},
                                                          servers.leases.get()));
  }
  servers.service = std::make_unique<SourceService>(options.source);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options.ip + ":0", grpc::InsecureServerCredentials(), &server->grpc_port_);
  builder.RegisterService(servers.service.get());
  servers.grpc = builder.BuildAndStart();
  if (servers.grpc == nullptr) return absl::UnavailableError("gRPC does not listen on " + options.ip);
  EPIC_ASSIGN_OR_RETURN(servers.ucx, UcxNode::Start({.settings = {.net_devices = {options.device},
                                                                  .listen_ip = options.ip,
                                                                  .trusted_network = options.device != "lo",
                                                                  .poll_us = options.ucx_poll_us},
                                                     .source = options.source}));
  return server;
}

std::string PeerServer::IssueTicket() { return *servers_->ucx->IssueTicket(); }

}  // namespace epic::transport
