// What the paths are compared with: memcpy, a plain socket, and UCX's own bench.
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "common/transport/bench/testing/meter.h"
#include "common/transport/bench/testing/ways.h"
#include "common/transport/ucx/testing/child.h"

namespace epic::transport {
namespace {

class MemcpyWay final : public Way {
 public:
  explicit MemcpyWay(WayShared* shared) : shared_(shared) {}
  std::string name() const override { return "memcpy"; }

  std::optional<Sample> Move(uint64_t bytes, int count, int) override {
    const ByteSpan from = shared_->objects->source.Bytes(*shared_->objects->regions.at(bytes), 0);
    std::vector<double> seconds;
    const Meter meter(shared_->peer);
    for (int i = 0; i < count; ++i) {
      const int64_t begin_ns = NowNs();
      auto& to = shared_->buffers[static_cast<size_t>(i) % shared_->buffers.size()];
      std::memcpy(to.data(), from.data(), bytes);
      seconds.push_back(SecondsSince(begin_ns));
    }
    return meter.Read(bytes * static_cast<uint64_t>(count), std::move(seconds));
  }
  bool IsRight(uint64_t) override { return true; }

 private:
  WayShared* const shared_;
};

// Asks for bytes and reads them: several in one stream, one after the other when one at a time is wanted.
class SocketWay final : public Way {
 public:
  explicit SocketWay(WayShared* shared) : shared_(shared) {}
  std::string name() const override { return "socket"; }

  std::optional<Sample> Move(uint64_t bytes, int count, int at_a_time) override {
    const int asks = at_a_time == 1 ? count : 1;
    std::vector<double> seconds;
    const Meter meter(shared_->peer);
    for (int i = 0; i < asks; ++i) {
      const int64_t begin_ns = NowNs();
      if (!Take(bytes * static_cast<uint64_t>(count / asks), bytes)) return std::nullopt;
      seconds.push_back(SecondsSince(begin_ns));
    }
    return meter.Read(bytes * static_cast<uint64_t>(count), std::move(seconds));
  }
  bool IsRight(uint64_t bytes) override {
    std::fill_n(shared_->buffers[0].begin(), bytes, std::byte{0});
    return Take(bytes, bytes) && std::all_of(shared_->buffers[0].begin(),
                                             shared_->buffers[0].begin() + static_cast<ptrdiff_t>(bytes),
                                             [](std::byte byte) { return byte == std::byte{'x'}; });
  }

 private:
  bool Take(uint64_t wanted, uint64_t bytes) {
    if (write(shared_->peer->socket(), &wanted, sizeof(wanted)) != sizeof(wanted)) return false;
    uint64_t at = 0;
    for (uint64_t left = wanted; left > 0;) {
      std::byte* const to = shared_->buffers[at / bytes % shared_->buffers.size()].data() + at % bytes;
      const ssize_t got = read(shared_->peer->socket(), to, std::min(left, bytes - at % bytes));
      if (got <= 0) return false;
      at += static_cast<uint64_t>(got);
      left -= static_cast<uint64_t>(got);
    }
    return true;
  }

  WayShared* const shared_;
};

// Both of its processes poll without sleep: on one processor together, as the scheduler likes to have them
// while something else runs, they reach a sixth. So each gets a processor of its own, where there are two.
class PerftestWay final : public Way {
 public:
  std::string name() const override { return "ucp_am_bw"; }

  std::optional<Sample> Move(uint64_t bytes, int count, int) override {
    const std::string port = FreePort();
    std::vector<std::string> arguments = {
        "ucx_perftest",        "-p", port, "-t", "ucp_am_bw", "-s", std::to_string(bytes), "-n",
        std::to_string(count), "-w", "4"};
    const std::vector<std::string> processors = Processors();
    Child server(On(processors.front(), arguments), environment_);
    arguments.insert(arguments.begin() + 1, "127.0.0.1");
    for (int tries = 0; tries < 20; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the server listens
      Child client(On(processors.back(), arguments), environment_);
      // The overall bandwidth, in the last line.
      while (const auto line = client.Hear()) {
        double rate = 0;
        if (std::sscanf(line->c_str(), "Final: %*s %*s %*s %*s %*s %lf", &rate) == 1)
          return Sample{rate, -1, {}};
      }
    }
    return std::nullopt;
  }
  bool IsRight(uint64_t) override { return true; }

 private:
  // Those that this process may use.
  static std::vector<std::string> Processors() {
    cpu_set_t set;
    CPU_ZERO(&set);
    EPIC_CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
    std::vector<std::string> all;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) all.push_back(std::to_string(i));
    }
    return all;
  }
  static std::vector<std::string> On(const std::string& processor, std::vector<std::string> command) {
    command.insert(command.begin(), {"taskset", "-c", processor});
    return command;
  }
  static std::string FreePort() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    EPIC_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
               getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    close(fd);
    return std::to_string(ntohs(address.sin_port));
  }

  const std::vector<std::string> environment_ = {"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"};
};

}  // namespace

std::unique_ptr<Way> MakeMemcpyWay(WayShared* shared) { return std::make_unique<MemcpyWay>(shared); }
std::unique_ptr<Way> MakeSocketWay(WayShared* shared) { return std::make_unique<SocketWay>(shared); }
std::unique_ptr<Way> MakePerftestWay() { return std::make_unique<PerftestWay>(); }

}  // namespace epic::transport
