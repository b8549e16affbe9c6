// Bandwidth of fetches over UCX on the loopback device, beside what UCX itself and a plain socket reach
// there.
//
//   epic_transport_bench [RUNS] [MIB]      runs of each kind, interleaved (9); bytes of a fetch (8 MiB)
//   epic_transport_bench serve|sink ...    its own other ends
//
// Each run moves about the same number of bytes from another process to this one: fetches of one layer, two
// at a time, checked as always; `ucp_am_bw` of ucx_perftest; and a socket. Prints the medians and the ratio.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/testing/end_of_fetch.h"
#include "common/transport/testing/test_source.h"
#include "common/transport/ucx/testing/child.h"
#include "common/transport/ucx/testing/text_door.h"
#include "common/transport/ucx/ucx_node.h"

namespace epic::transport {
namespace {

constexpr double kMib = 1024.0 * 1024.0;
constexpr int kFetches = 64;  // of each run
constexpr const char* kPort = "13391";

// One layer of so many MiB: heads of 512 KiB.
KvLayout BenchLayout(uint32_t mib) {
  return {.layers = 1, .kv_heads = mib, .head_dim = 64, .tokens = 4096, .dtype = KvDtype::kBf16};
}

double Seconds(int64_t since_ns) {
  return static_cast<double>(SystemClock::Get()->SteadyNs() - since_ns) * 1e-9;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

int Serve(uint32_t mib) {
  TestSource source(1);
  source.Put(1, BenchLayout(mib));
  const auto node = UcxNode::Start({.source = &source});
  if (!node.ok()) return 1;
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) std::cout << ToHex(*(*node)->IssueTicket()) << std::endl;
  return 0;
}

// Writes `count` times `bytes` to whoever listens at `port` of the loopback device.
int Sink(uint16_t port, size_t bytes, int count) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return 1;
  const std::vector<char> data(bytes, 'x');
  for (int i = 0; i < count; ++i) {
    for (size_t at = 0; at < bytes;) {
      const ssize_t written = write(fd, data.data() + at, bytes - at);
      if (written <= 0) return 1;
      at += static_cast<size_t>(written);
    }
  }
  return 0;
}

class ChildDoor final : public TicketSource {
 public:
  explicit ChildDoor(Child* child) : child_(child) {}
  void Ask(std::function<void(absl::StatusOr<std::string>)> done) override {
    child_->Say("ticket");
    done(FromHex(child_->Hear().value_or("")));
  }

 private:
  Child* const child_;
};

// MiB/s of `fetches` fetches, two at a time; 0 when one failed.
double FetchRate(Path* path, const std::shared_ptr<const Region>& region,
                 std::vector<std::vector<std::byte>>* buffers, int fetches) {
  std::vector<std::shared_ptr<EndOfFetch>> endings;
  const int64_t start_ns = SystemClock::Get()->SteadyNs();
  for (int i = 0; i < fetches; ++i) {
    if (i >= 2 && !endings[i - 2]->Wait().ok()) return 0;
    endings.push_back(std::make_shared<EndOfFetch>());
    FetchRequest request{.region = region,
                         .ranges = {{.layer = 0, .to = (*buffers)[i % buffers->size()]}},
                         .deadline_steady_ns = start_ns + 60'000'000'000};
    path->Fetch(std::move(request), endings.back());
  }
  for (const auto& ending : endings) {
    if (!ending->Wait().ok()) return 0;
  }
  return static_cast<double>(region->layout.LayerBytes()) * fetches / kMib / Seconds(start_ns);
}

// The "overall" bandwidth of the last line that ucx_perftest prints; 0 when there is none.
double PerftestRate(size_t bytes, int count) {
  const std::vector<std::string> environment = {"UCX_TLS=tcp", "UCX_NET_DEVICES=lo"};
  std::vector<std::string> arguments = {
      "ucx_perftest",        "-p", kPort, "-t", "ucp_am_bw", "-s", std::to_string(bytes), "-n",
      std::to_string(count), "-w", "4"};
  Child server(arguments, environment);
  arguments.insert(arguments.begin() + 1, "127.0.0.1");
  for (int tries = 0; tries < 20; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until the server listens
    Child client(arguments, environment);
    while (const auto line = client.Hear()) {
      double rate = 0;
      if (std::sscanf(line->c_str(), "Final: %*s %*s %*s %*s %*s %lf", &rate) == 1) return rate;
    }
  }
  return 0;
}

double SocketRate(const std::string& self, std::vector<std::byte>* buffer, int count) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return 0;
  }
  Child sender({self, "sink", std::to_string(ntohs(address.sin_port)), std::to_string(buffer->size()),
                std::to_string(count)});
  const int fd = accept(listener, nullptr, nullptr);
  const int64_t start_ns = SystemClock::Get()->SteadyNs();
  uint64_t total = 0;
  while (const ssize_t got = read(fd, buffer->data(), buffer->size())) {
    if (got < 0) break;
    total += static_cast<uint64_t>(got);
  }
  const double rate = static_cast<double>(total) / kMib / Seconds(start_ns);
  close(fd);
  close(listener);
  return total == buffer->size() * static_cast<uint64_t>(count) ? rate : 0;
}

int Bench(const std::string& self, int runs, uint32_t mib) {
  Child child({self, "serve", std::to_string(mib)});
  if (child.Hear() != "ready") return 1;
  TestSource twin(1);
  const auto region = twin.Put(1, BenchLayout(mib));
  const auto node = UcxNode::Start({});
  if (!node.ok()) return 1;
  const auto path = (*node)->MakePath(std::make_shared<ChildDoor>(&child), {});
  std::vector<std::vector<std::byte>> buffers(2, std::vector<std::byte>(region->layout.LayerBytes()));
  // Right before fast; warms up, too.
  if (FetchRate(path.get(), region, &buffers, 4) == 0) return 1;
  const ByteSpan right = twin.Bytes(*region, 0);
  for (const auto& buffer : buffers) {
    if (!std::equal(right.begin(), right.end(), buffer.begin())) return 1;
  }
  std::vector<double> ours;
  std::vector<double> perftest;
  std::vector<double> plain;
  std::printf("%u MiB, %d of them a run, MiB/s\nrun  fetch  ucp_am_bw  socket\n", mib, kFetches);
  for (int run = 0; run < runs; ++run) {
    ours.push_back(FetchRate(path.get(), region, &buffers, kFetches));
    perftest.push_back(PerftestRate(region->layout.LayerBytes(), kFetches));
    plain.push_back(SocketRate(self, &buffers[0], kFetches));
    std::printf("%3d  %5.0f  %9.0f  %6.0f\n", run, ours.back(), perftest.back(), plain.back());
    std::fflush(stdout);
  }
  std::printf("median fetch %.0f, ucp_am_bw %.0f (%.0f %%), socket %.0f (%.0f %%)\n", Median(ours),
              Median(perftest), 100 * Median(ours) / Median(perftest), Median(plain),
              100 * Median(ours) / Median(plain));
  return 0;
}

}  // namespace
}  // namespace epic::transport

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "9";
  if (mode == "serve" && argc == 3) {
    return epic::transport::Serve(static_cast<uint32_t>(std::stoul(argv[2])));
  }
  if (mode == "sink" && argc == 5) {
    return epic::transport::Sink(static_cast<uint16_t>(std::stoul(argv[2])), std::stoull(argv[3]),
                                 std::stoi(argv[4]));
  }
  return epic::transport::Bench(argv[0], std::stoi(mode), argc > 2 ? std::stoul(argv[2]) : 8);
}
