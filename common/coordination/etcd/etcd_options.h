// What an EtcdCoordinator is made of. A value.
#ifndef EPIC_COMMON_COORDINATION_ETCD_ETCD_OPTIONS_H_
#define EPIC_COMMON_COORDINATION_ETCD_ETCD_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/rpc/credentials.h"

namespace epic {

struct EtcdOptions {
  std::vector<std::string> endpoints;              // HOST:PORT of the members, at least one
  std::shared_ptr<const Credentials> credentials;  // null: plain
  Timers* timers = nullptr;                        // outlives the coordinator
  const Clock* clock = SystemClock::Get();
  int64_t call_ms = 5'000;     // until a call is answered, whatever is tried for it
  int64_t attempt_ms = 1'500;  // at one endpoint, where others can be asked
  int64_t probe_ms = 1'000;    // between two probes, and until one has failed
};

}  // namespace epic

#endif  // EPIC_COMMON_COORDINATION_ETCD_ETCD_OPTIONS_H_
