#include "common/transport/bench/testing/bench_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <thread>

#include "common/base/check.h"
#include "common/transport/bench/testing/bench_objects.h"
#include "common/transport/bench/testing/peer_server.h"
#include "common/transport/ucx/testing/text_door.h"

namespace epic::transport {
namespace {

// Writes what it is asked for, to one client, until that goes.
void ServeSocket(int listener) {
  const int fd = accept(listener, nullptr, nullptr);
  const std::vector<char> data(size_t{8} << 20, 'x');
  uint64_t wanted = 0;
  while (recv(fd, &wanted, sizeof(wanted), MSG_WAITALL) == sizeof(wanted)) {
    while (wanted > 0) {
      const ssize_t written = send(fd, data.data(), std::min<uint64_t>(wanted, data.size()), MSG_NOSIGNAL);
      if (written <= 0) break;
      wanted -= static_cast<uint64_t>(written);
    }
  }
  close(fd);
}

// A listener on a free port of the loopback device, and that port.
std::pair<int, uint16_t> Listen() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EPIC_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 && listen(fd, 1) == 0 &&
             getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return {fd, ntohs(address.sin_port)};
}

[[noreturn]] void GiveUp(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(2);
}

}  // namespace

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

int RunBenchPeer(const std::vector<std::string>& arguments) {
  std::vector<uint64_t> sizes;
  for (size_t i = 2; i < arguments.size(); ++i) sizes.push_back(std::stoull(arguments[i]));
  BenchObjects objects(sizes);

  PeerServerOptions options{.source = &objects.source,
                            .ucx_poll_us = std::stoll(arguments.at(1)),
                            .shm_path = arguments.at(0) + "/shm"};
  for (const auto& [bytes, region] : objects.regions) options.shm_regions.push_back(region);
  const auto server = PeerServer::Start(options);
  if (!server.ok()) GiveUp(server.status().ToString());

  const auto [listener, port] = Listen();
  std::thread socket_thread([listener = listener] { ServeSocket(listener); });

  std::cout << (*server)->grpc_port() << ' ' << port << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "ticket") std::cout << ToHex((*server)->IssueTicket()) << std::endl;
    if (line == "cpu") std::cout << CpuSeconds() << std::endl;
  }
  shutdown(listener, SHUT_RDWR);
  close(listener);
  socket_thread.join();
  return 0;
}

BenchPeer::BenchPeer(const std::string& program, int64_t ucx_poll_us, const std::vector<uint64_t>& sizes) {
  std::vector<std::string> arguments = {program, "peer", folder_.path(), std::to_string(ucx_poll_us)};
  for (const uint64_t bytes : sizes) arguments.push_back(std::to_string(bytes));
  MutexLock lock(&mu_);
  child_ = std::make_unique<Child>(std::move(arguments));
  unsigned grpc_port = 0;
  unsigned port = 0;
  const std::string line = child_->Hear().value_or("");
  if (std::sscanf(line.c_str(), "%u %u", &grpc_port, &port) != 2) GiveUp("the other process did not start");
  grpc_address_ = "127.0.0.1:" + std::to_string(grpc_port);
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    GiveUp("the other process does not answer");
  }
}

std::string BenchPeer::Say(const std::string& line) {
  MutexLock lock(&mu_);
  child_->Say(line);
  return child_->Hear().value_or("");
}

void BenchPeer::Ask(std::function<void(absl::StatusOr<std::string>)> done) { done(FromHex(Say("ticket"))); }

double BenchPeer::PeerCpuSeconds() { return std::strtod(Say("cpu").c_str(), nullptr); }

}  // namespace epic::transport
