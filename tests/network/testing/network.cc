#include "tests/network/testing/network.h"

#include <net/if.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

namespace epic::network {

absl::Status EnterOwnNetwork() {
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) {
    return absl::UnavailableError(std::string("no network of our own: ") + std::strerror(errno));
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0) {
    return absl::UnavailableError(std::string("no /sys of our own: ") + std::strerror(errno));
  }
  for (const char* const tool : {"ip -V", "tc -V", "nft -v"}) {
    if (!Run(tool).ok()) return absl::UnavailableError(std::string("a tool is missing: ") + tool);
  }
  return Run("ip link set lo up");
}

absl::Status Run(const std::string& command) {
  std::vector<std::string> words = {"timeout", "10"};
  std::istringstream text(command);
  for (std::string word; text >> word;) words.push_back(word);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // The standard output belongs to whoever speaks over it.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
  std::string path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
  char* environment[] = {path.data(), nullptr};
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, "timeout", &actions, nullptr, arguments.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return absl::InternalError(command + ": " + std::strerror(failed));
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) return absl::InternalError(command + " failed");
  return absl::OkStatus();
}

absl::Status AwaitCarrier(const std::string& device) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool runs = false;
  for (int looks = 0; !runs && looks < 1000; ++looks) {
    if (looks > 0) HoldFor(5);
    ifreq request{};
    std::strncpy(request.ifr_name, device.c_str(), IFNAMSIZ - 1);
    runs = ioctl(fd, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_RUNNING) != 0;
  }
  close(fd);
  return runs ? absl::OkStatus() : absl::UnavailableError(device + " carries nothing");
}

int64_t DroppedPackets() {
  FILE* const out = popen("nft list table inet faults", "r");
  if (out == nullptr) return -1;
  int64_t packets = -1;
  char line[512];
  while (std::fgets(line, sizeof(line), out) != nullptr) {
    long long count = 0;
    const char* const counter = std::strstr(line, "counter packets ");
    if (counter != nullptr && std::sscanf(counter, "counter packets %lld", &count) == 1) packets = count;
  }
  pclose(out);
  return packets;
}

void HoldFor(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace epic::network
