#include "common/transport/bench/testing/bench_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <thread>

#include "common/base/check.h"
#include "common/storage/object_codec.h"
#include "common/storage/shm/server.h"
#include "common/transport/bench/testing/bench_objects.h"
#include "common/transport/grpc/testing/source_service.h"
#include "common/transport/ucx/testing/text_door.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {
namespace {

// The objects in an arena, as a store would hand them over.
class ArenaLeases final : public shm::LeaseSource {
 public:
  explicit ArenaLeases(const BenchObjects& objects)
      : file_(memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    for (const auto& [bytes, region] : objects.regions) size_ += bytes;
    EPIC_CHECK(file_.valid() && ftruncate(file_.get(), static_cast<off_t>(size_)) == 0);
    void* pages = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EPIC_CHECK(pages != MAP_FAILED);
    auto* const arena = static_cast<std::byte*>(pages);
    uint64_t at = 0;
    for (const auto& [bytes, region] : objects.regions) {
      const ByteSpan layer = objects.source.Bytes(*region, 0);
      std::copy(layer.begin(), layer.end(), arena + at);
      answers_[region->key] = {.generation = region->generation,
                               .build = *region->build,
                               .layer_offsets = {at},
                               .block_crcs = region->block_crcs};
      at += bytes;
    }
    munmap(pages, size_);
    EPIC_CHECK(fcntl(file_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) == 0);
    read_only_.Reset(open(("/proc/self/fd/" + std::to_string(file_.get())).c_str(), O_RDONLY | O_CLOEXEC));
    EPIC_CHECK(read_only_.valid());
  }
  int fd() const { return read_only_.get(); }
  uint64_t size() const { return size_; }

  Lease Find(const shm::LeaseRequest& request) override {
    Lease lease;
    const auto found = answers_.find(request.key);
    if (found == answers_.end()) return lease;
    lease.answer.outcome = shm::LeaseOutcome::kLeased;
    lease.answer.object = found->second;
    if (request.zero_copy) lease.hold = std::make_shared<int>(0);
    return lease;
  }
  bool IsCurrent(const std::string&, const ObjectKey& key, uint64_t generation) override {
    const auto found = answers_.find(key);
    return found != answers_.end() && found->second.generation == generation;
  }

 private:
  shm::UniqueFd file_;
  shm::UniqueFd read_only_;
  uint64_t size_ = 0;
  std::map<ObjectKey, shm::LeasedObject> answers_;
};

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
  for (size_t i = 1; i < arguments.size(); ++i) sizes.push_back(std::stoull(arguments[i]));
  BenchObjects objects(sizes);

  ArenaLeases leases(objects);
  const auto shm_server = shm::Server::Start({.path = arguments.at(0) + "/shm",
                                              .arena_fd = leases.fd(),
                                              .arena_bytes = leases.size(),
                                              .incarnation = BenchObjects::kIncarnation},
                                             &leases);
  if (!shm_server.ok()) GiveUp(shm_server.status().ToString());

  SourceService service(&objects.source);
  grpc::ServerBuilder builder;
  int grpc_port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &grpc_port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> grpc_server = builder.BuildAndStart();
  if (grpc_server == nullptr) GiveUp("no gRPC server");

  const auto node = UcxNode::Start({.source = &objects.source});
  if (!node.ok()) GiveUp(node.status().ToString());

  const auto [listener, port] = Listen();
  std::thread socket_thread([listener = listener] { ServeSocket(listener); });

  std::cout << grpc_port << ' ' << port << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    if (line == "ticket") std::cout << ToHex(*(*node)->IssueTicket()) << std::endl;
    if (line == "cpu") std::cout << CpuSeconds() << std::endl;
  }
  shutdown(listener, SHUT_RDWR);
  close(listener);
  socket_thread.join();
  return 0;
}

BenchPeer::BenchPeer(const std::string& program, const std::vector<uint64_t>& sizes) {
  std::vector<std::string> arguments = {program, "peer", folder_.path()};
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
