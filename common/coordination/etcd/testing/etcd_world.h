// A cluster of etcd as the world of a test (coordinator_contract.h), and time that a test waits for. Tests
// only; one thread.
#ifndef EPIC_COMMON_COORDINATION_ETCD_TESTING_ETCD_WORLD_H_
#define EPIC_COMMON_COORDINATION_ETCD_TESTING_ETCD_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/coordination/etcd/etcd_coordinator.h"
#include "common/coordination/etcd/testing/etcd_processes.h"
#include "common/coordination/testing/coordination_world.h"

namespace epic::testing {

// False when `condition` did not become true in time.
bool AwaitReal(int64_t limit_ms, const std::function<bool()>& condition);

class EtcdWorld final : public CoordinationWorld {
 public:
  // Outlives the world. What it stores is cleared.
  explicit EtcdWorld(EtcdProcesses* etcd);

  Coordinator* NewCoordinator() override;
  EtcdCoordinator* NewEtcd(EtcdOptions options = {});
  bool Await(const std::function<bool()>& condition) override { return AwaitReal(30'000, condition); }
  void Compact(Revision now) override;
  int64_t LeaseMs() const override { return 2'000; }
  Timers* timers() { return &timers_; }

 private:
  EtcdProcesses* const etcd_;
  TimerThread timers_{SystemClock::Get()};
  std::vector<std::unique_ptr<EtcdCoordinator>> coordinators_;
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_COORDINATION_ETCD_TESTING_ETCD_WORLD_H_
