// A link of two tun devices, whose packets this process carries over, each after a delay. One end is moved to
// the network of another process; both end with this object. Thread-safe.
#ifndef EPIC_TESTS_NETWORK_TESTING_FORWARDER_H_
#define EPIC_TESTS_NETWORK_TESTING_FORWARDER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace epic::network {

class Forwarder {
 public:
  // Makes both devices in this process's network. Errors: Unavailable where the kernel has no tun.
  static absl::StatusOr<std::unique_ptr<Forwarder>> Make(const std::string& here, const std::string& there,
                                                         int64_t delay_us);
  ~Forwarder();
  // Packets that were carried over so far, in both directions.
  uint64_t packets() const { return packets_.load(); }

 private:
  struct Waiting {
    int64_t due_ns = 0;
    std::vector<char> packet;
  };
  Forwarder(int here, int there, int64_t delay_us);
  void Carry();
  void Take(int direction, int64_t now_ns);
  void Give(int direction, int64_t now_ns);

  const int fds_[2];
  const int64_t delay_ns_;
  int stop_[2] = {-1, -1};         // a pipe that ends the thread
  std::deque<Waiting> queues_[2];  // of the thread; direction d goes from fds_[d] to the other one
  std::atomic<uint64_t> packets_{0};
  std::thread thread_;
};

}  // namespace epic::network

#endif  // EPIC_TESTS_NETWORK_TESTING_FORWARDER_H_
