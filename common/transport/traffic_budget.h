// How many bytes of transfers a process has under way and draws per second, shared by classes of traffic by
// priority: a fetch that a request waits for goes before write-behind, that before repair. One per process,
// shared by its choosers (path_chooser.h). Thread-safe. Not here: what is transferred.
//
// A class may take only what its reserve leaves in the bucket of the link, so that a burst of repair does not
// make the next fetch wait; a class that waits for room of the link holds up those below it, one that waits
// for its own limit does not.
#ifndef EPIC_COMMON_TRANSPORT_TRAFFIC_BUDGET_H_
#define EPIC_COMMON_TRANSPORT_TRAFFIC_BUDGET_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/transport/transport.h"

namespace epic::transport {

struct ClassLimits {
  uint64_t in_flight_bytes = 0;  // at least 1
  uint64_t bytes_per_s = 0;      // 0: no limit of its own
  uint64_t reserve_bytes = 0;    // of the link's bucket, left to the classes above
};

struct TrafficLimits {
  uint64_t in_flight_bytes = uint64_t{64} << 20;  // of all classes; at least 1
  uint64_t bytes_per_s = 0;                       // of the link; 0: as fast as it goes
  uint64_t burst_bytes = uint64_t{16} << 20;      // of every bucket
  std::array<ClassLimits, kTrafficClasses> classes = {{
      {.in_flight_bytes = uint64_t{64} << 20},
      {.in_flight_bytes = uint64_t{32} << 20, .reserve_bytes = uint64_t{4} << 20},
      {.in_flight_bytes = uint64_t{16} << 20, .reserve_bytes = uint64_t{8} << 20},
  }};
};

class TrafficBudget {
 public:
  // `timers`, of `clock`, outlive it. REQUIRES: reserves below burst_bytes.
  TrafficBudget(const TrafficLimits& limits, const Clock* clock, Timers* timers);
  ~TrafficBudget();
  TrafficBudget(const TrafficBudget&) = delete;
  TrafficBudget& operator=(const TrafficBudget&) = delete;

  using Ticket = uint64_t;  // never 0
  // Calls `granted` once, cheap, when so many bytes may be asked for: within this call, or on the thread that
  // returns bytes, or that of the timers. What is larger than a limit is granted alone. In the order in which
  // they were asked for within a class. Grants are given back by Return.
  Ticket Ask(TrafficClass traffic, uint64_t bytes, std::function<void()> granted);
  // True: it was not granted and will not be. False: it was, or is just being granted.
  [[nodiscard]] bool Withdraw(Ticket ticket);
  // REQUIRES: not more than was granted.
  void Return(TrafficClass traffic, uint64_t bytes);

  struct Usage {
    std::array<uint64_t, kTrafficClasses> in_flight_bytes = {};
    std::array<uint64_t, kTrafficClasses> waiting = {};  // askers
  };
  Usage usage() const;

 private:
  struct State;

  const std::shared_ptr<State> state_;
};

}  // namespace epic::transport

#endif  // EPIC_COMMON_TRANSPORT_TRAFFIC_BUDGET_H_
