#include "common/coordination/etcd/testing/etcd_processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "common/base/check.h"
#include "common/base/system_random.h"

namespace epic::testing {
namespace {

constexpr char kBinary[] = "/usr/bin/etcd";
// Ends it with the thread that started it.
const std::vector<std::string> kWithParent = {"/usr/bin/setpriv", "--pdeathsig", "KILL"};

// Ports that are free now, all different.
std::vector<std::string> FreeAddresses(size_t count) {
  std::vector<std::string> addresses;
  std::vector<int> sockets;
  for (size_t i = 0; i < count; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    EPIC_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0);
    EPIC_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    addresses.push_back("127.0.0.1:" + std::to_string(ntohs(at.sin_port)));
    sockets.push_back(fd);
  }
  for (const int fd : sockets) close(fd);
  return addresses;
}

}  // namespace

bool EtcdProcesses::Installed() { return access(kBinary, X_OK) == 0; }

EtcdProcesses::EtcdProcesses(size_t members, Tls tls)
    : tls_(std::move(tls)), token_("t" + std::to_string(SystemRandom())) {
  EPIC_CHECK(Installed());
  const std::vector<std::string> addresses = FreeAddresses(members * 2);
  for (size_t i = 0; i < members; ++i) {
    const std::string name = "m" + std::to_string(i);
    members_.push_back({name, addresses[2 * i], addresses[2 * i + 1], folder_.path() + "/" + name});
  }
  StartAll();
}

EtcdProcesses::~EtcdProcesses() { KillAll(); }

std::vector<std::string> EtcdProcesses::addresses() const {
  std::vector<std::string> all;
  for (const Member& member : members_) all.push_back(member.address);
  return all;
}

std::vector<std::string> EtcdProcesses::ArgumentsOf(const Member& member) const {
  std::string cluster;
  for (const Member& one : members_) {
    cluster += (cluster.empty() ? "" : ",") + one.name + "=http://" + one.peer_address;
  }
  const std::string client = (tls_.cert_file.empty() ? "http://" : "https://") + member.address;
  std::vector<std::string> arguments = {kBinary,
                                        "--name=" + member.name,
                                        "--data-dir=" + member.data_dir,
                                        "--listen-client-urls=" + client,
                                        "--advertise-client-urls=" + client,
                                        "--listen-peer-urls=http://" + member.peer_address,
                                        "--initial-advertise-peer-urls=http://" + member.peer_address,
                                        "--initial-cluster=" + cluster,
                                        "--initial-cluster-state=new",
                                        "--initial-cluster-token=" + token_,
                                        "--heartbeat-interval=50",
                                        "--election-timeout=500",
                                        "--logger=zap",
                                        "--log-level=error"};
  if (tls_.cert_file.empty()) return arguments;
  arguments.push_back("--cert-file=" + tls_.cert_file);
  arguments.push_back("--key-file=" + tls_.key_file);
  arguments.push_back("--trusted-ca-file=" + tls_.ca_file);
  arguments.push_back("--client-cert-auth");
  return arguments;
}

void EtcdProcesses::Start(size_t at) {
  Member& member = members_[at];
  EPIC_CHECK(member.pid == 0);
  std::vector<std::string> arguments = kWithParent;
  for (const std::string& argument : ArgumentsOf(member)) arguments.push_back(argument);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string log = folder_.path() + "/" + member.name + ".log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  // Not fork: gRPC's handlers of forks stop its threads in this process, and calls that run are lost.
  EPIC_CHECK(posix_spawn(&member.pid, argv[0], &actions, nullptr, argv.data(), nullptr) == 0);
  posix_spawn_file_actions_destroy(&actions);
}

void EtcdProcesses::Signal(size_t member, int signal) {
  EPIC_CHECK(members_[member].pid > 0 && kill(members_[member].pid, signal) == 0);
}

void EtcdProcesses::Kill(size_t at) {
  Member& member = members_[at];
  if (member.pid == 0) return;
  kill(member.pid, SIGKILL);
  EPIC_CHECK(waitpid(member.pid, nullptr, 0) == member.pid);
  member.pid = 0;
}

void EtcdProcesses::KillAll() {
  for (size_t i = 0; i < members_.size(); ++i) Kill(i);
}

void EtcdProcesses::StartAll() {
  for (size_t i = 0; i < members_.size(); ++i) Start(i);
}

void EtcdProcesses::SaveData(size_t member, const std::string& name) const {
  const std::string to = folder_.path() + "/saved-" + name;
  std::filesystem::remove_all(to);
  std::filesystem::copy(members_[member].data_dir, to, std::filesystem::copy_options::recursive);
}

void EtcdProcesses::RestoreData(size_t member, const std::string& name) const {
  std::filesystem::remove_all(members_[member].data_dir);
  std::filesystem::copy(folder_.path() + "/saved-" + name, members_[member].data_dir,
                        std::filesystem::copy_options::recursive);
}

}  // namespace epic::testing
