// The other process of the network tests: serves objects over gRPC, UCX and shm out of a network of its own.
// Spoken with over the standard streams, line by line.
//
//   epic_transport_peer random INCARNATION COUNT TOKENS    objects of 4 layers, made by their number
//   epic_transport_peer file INCARNATION PATH [SHM]        those of a file (objects_file.h); a socket for shm
//       says its process id once it is there, then answers:
//       "run COMMAND": "ok", or what went wrong; "serve IP DEVICE": the port of gRPC; "ticket": a ticket;
//       "open": how many objects are open
#include <unistd.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "common/status/status_macros.h"
#include "common/transport/bench/testing/peer_server.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/testing/text_door.h"
#include "tests/network/testing/network.h"
#include "tests/network/testing/objects_file.h"

namespace epic::network {
namespace {

absl::StatusOr<std::unique_ptr<transport::PeerServer>> StartServer(
    const transport::PeerServerOptions& options) {
  EPIC_RETURN_IF_ERROR(AwaitCarrier(options.device));
  return transport::PeerServer::Start(options);
}

int Serve(transport::TestSource* source, transport::PeerServerOptions options) {
  std::unique_ptr<transport::PeerServer> server;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "run") {
      const absl::Status status = Run(line.substr(word.size() + 1));
      std::cout << (status.ok() ? "ok" : std::string(status.message())) << std::endl;
    } else if (word == "serve") {
      words >> options.ip >> options.device;
      auto started = StartServer(options);
      if (!started.ok()) {
        std::cerr << started.status().message() << std::endl;
        return 1;
      }
      server = *std::move(started);
      std::cout << server->grpc_port() << std::endl;
    } else if (word == "ticket") {
      std::cout << transport::ToHex(server->IssueTicket()) << std::endl;
    } else if (word == "open") {
      std::cout << source->open() << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace epic::network

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) return 2;
  if (const absl::Status status = epic::network::EnterOwnNetwork(); !status.ok()) {
    std::cerr << status.message() << std::endl;
    return 1;
  }
  epic::transport::TestSource source(std::stoull(arguments[1]));
  epic::transport::PeerServerOptions options{.source = &source};
  if (arguments[0] == "random") {
    for (uint64_t i = 0; i < std::stoull(arguments[2]); ++i) {
      const auto tokens = static_cast<uint32_t>(std::stoul(arguments.at(3)));
      source.Put(i + 1, epic::transport::SmallLayout(4, tokens));
    }
  } else {
    options.shm_regions = epic::network::ReadObjects(arguments[2], &source);
    if (arguments.size() > 3) options.shm_path = arguments[3];
  }
  std::cout << getpid() << std::endl;
  return epic::network::Serve(&source, options);
}
