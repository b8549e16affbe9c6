#include "tests/network/testing/forwarder.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace epic::network {
namespace {

constexpr size_t kQueue = 2000;  // packets each way; more are dropped, as a router would
constexpr size_t kPacketBytes = 2048;

// -1 where there is none.
int MakeTun(const std::string& name) {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return -1;
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd, TUNSETIFF, &request) == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Forwarder>> Forwarder::Make(const std::string& here, const std::string& there,
                                                           int64_t delay_us) {
  const int one = MakeTun(here);
  const int other = MakeTun(there);
  if (one >= 0 && other >= 0) return std::unique_ptr<Forwarder>(new Forwarder(one, other, delay_us));
  if (one >= 0) close(one);
  if (other >= 0) close(other);
  return absl::UnavailableError(std::string("no tun devices: ") + std::strerror(errno));
}

Forwarder::Forwarder(int here, int there, int64_t delay_us) : fds_{here, there}, delay_ns_(delay_us * 1000) {
  EPIC_CHECK(pipe2(stop_, O_CLOEXEC) == 0);
  thread_ = std::thread([this] { Carry(); });
}

Forwarder::~Forwarder() {
  close(stop_[1]);
  thread_.join();
  close(stop_[0]);
  for (const int fd : fds_) close(fd);
}

void Forwarder::Carry() {
  while (true) {
    int64_t now_ns = SystemClock::Get()->SteadyNs();
    int64_t next_ns = now_ns + 1'000'000'000;
    for (const auto& queue : queues_) {
      if (!queue.empty()) next_ns = std::min(next_ns, queue.front().due_ns);
    }
    const int64_t wait_ns = std::max<int64_t>(0, next_ns - now_ns);
    const timespec wait{.tv_sec = wait_ns / 1'000'000'000, .tv_nsec = wait_ns % 1'000'000'000};
    pollfd ready[3] = {{.fd = fds_[0], .events = POLLIN},
                       {.fd = fds_[1], .events = POLLIN},
                       {.fd = stop_[0], .events = POLLIN}};
    ppoll(ready, 3, &wait, nullptr);
    if (ready[2].revents != 0) return;
    now_ns = SystemClock::Get()->SteadyNs();
    for (const int direction : {0, 1}) {
      Take(direction, now_ns);
      Give(direction, now_ns);
    }
  }
}

void Forwarder::Take(int direction, int64_t now_ns) {
  char packet[kPacketBytes];
  while (true) {
    const ssize_t size = read(fds_[direction], packet, sizeof(packet));
    if (size <= 0) return;  // nothing there, or a device that is not up yet
    if (queues_[direction].size() >= kQueue) continue;
    queues_[direction].push_back({now_ns + delay_ns_, std::vector<char>(packet, packet + size)});
  }
}

void Forwarder::Give(int direction, int64_t now_ns) {
  auto& queue = queues_[direction];
  while (!queue.empty() && queue.front().due_ns <= now_ns) {
    const std::vector<char>& packet = queue.front().packet;
    // What the device does not take is lost, as on any link.
    if (write(fds_[1 - direction], packet.data(), packet.size()) > 0) packets_ += 1;
    queue.pop_front();
  }
}

}  // namespace epic::network
