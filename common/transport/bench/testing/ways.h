// The ways on which the transport bench moves bytes: EPIC's paths, and what they are compared with. Each is
// timed by moving `count` times the same bytes.
//
// Owned by the bench; one thread. Makes and times, but judges nothing.
#ifndef EPIC_COMMON_TRANSPORT_BENCH_TESTING_WAYS_H_
#define EPIC_COMMON_TRANSPORT_BENCH_TESTING_WAYS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/transport/bench/testing/bench_objects.h"
#include "common/transport/bench/testing/bench_peer.h"

namespace epic::transport {

struct Sample {
  double mib_per_s = 0;
  double cpu_s_per_gb = 0;      // of both processes; GB = 1e9 bytes; negative: not known
  std::vector<double> seconds;  // of each transfer, where they go one at a time
};

// One way. Transfers of it end in a buffer of this process.
class Way {
 public:
  virtual ~Way() = default;
  virtual std::string name() const = 0;
  // Moves the object of that size `count` times, `at_a_time` of them under way. nullopt when one failed.
  virtual std::optional<Sample> Move(uint64_t bytes, int count, int at_a_time) = 0;
  // Whether the bytes of that size come right.
  virtual bool IsRight(uint64_t bytes) = 0;
};

// What all ways share. Outlives them.
struct WayShared {
  BenchPeer* peer = nullptr;
  BenchObjects* objects = nullptr;
  int64_t ucx_poll_us = 0;
  std::vector<std::vector<std::byte>> buffers;  // where bytes go, in turn; each as large as the largest
};

// Fetches of one range, as a reader does them: checked, and confirmed at the end.
std::unique_ptr<Way> MakeInprocWay(WayShared* shared);
std::unique_ptr<Way> MakeShmWay(WayShared* shared);
std::unique_ptr<Way> MakeGrpcWay(WayShared* shared);
std::unique_ptr<Way> MakeUcxWay(WayShared* shared);
// The memory of the peer is held, and let go; `check`: and its bytes are read and checked.
std::unique_ptr<Way> MakeShmHoldWay(WayShared* shared, bool check);
// What they are compared with.
std::unique_ptr<Way> MakeMemcpyWay(WayShared* shared);
std::unique_ptr<Way> MakeSocketWay(WayShared* shared);
// `ucp_am_bw` of ucx_perftest over TCP on the loopback device, by two processes of its own. Only bandwidth.
std::unique_ptr<Way> MakePerftestWay();

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_BENCH_TESTING_WAYS_H_
