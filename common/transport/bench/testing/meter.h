// Time and CPU seconds of a sample of the transport bench. Header only; one thread.
#ifndef EPIC_COMMON_TRANSPORT_BENCH_TESTING_METER_H_
#define EPIC_COMMON_TRANSPORT_BENCH_TESTING_METER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/transport/bench/testing/bench_peer.h"
#include "common/transport/bench/testing/ways.h"

namespace epic::transport {

inline constexpr double kMib = 1024.0 * 1024.0;
inline constexpr double kGb = 1e9;

inline int64_t NowNs() { return SystemClock::Get()->SteadyNs(); }
inline double SecondsSince(int64_t ns) { return static_cast<double>(NowNs() - ns) * 1e-9; }

// From the construction on.
class Meter {
 public:
  explicit Meter(BenchPeer* peer) : peer_(peer), cpu_(CpuSeconds() + peer->PeerCpuSeconds()), ns_(NowNs()) {}
  // `seconds`: of each transfer.
  Sample Read(uint64_t bytes, std::vector<double> seconds) const {
    const double took = SecondsSince(ns_);
    const double cpu = CpuSeconds() + peer_->PeerCpuSeconds() - cpu_;
    const double moved = static_cast<double>(bytes);
    return {moved / kMib / took, cpu / (moved / kGb), std::move(seconds)};
  }

 private:
  BenchPeer* const peer_;
  const double cpu_;
  const int64_t ns_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_BENCH_TESTING_METER_H_
