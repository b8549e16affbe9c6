// Where the contract of coordinators (coordinator_contract.h) is tested. Tests only; one thread.
#ifndef EPIC_COMMON_COORDINATION_TESTING_COORDINATION_WORLD_H_
#define EPIC_COMMON_COORDINATION_TESTING_COORDINATION_WORLD_H_

#include <cstdint>
#include <functional>

#include "common/coordination/coordinator.h"

namespace epic::testing {

// A store with nothing in it, and coordinators that reach it.
class CoordinationWorld {
 public:
  virtual ~CoordinationWorld() = default;
  // Owned by the world.
  virtual Coordinator* NewCoordinator() = 0;
  // Lets time pass until `condition` holds; false when it does not within a time that is ample.
  virtual bool Await(const std::function<bool()>& condition) = 0;
  // Forgets the changes up to now.
  virtual void Compact(Revision now) = 0;
  // The least time that a lease may have.
  virtual int64_t LeaseMs() const = 0;
};

}  // namespace epic::testing

#endif  // EPIC_COMMON_COORDINATION_TESTING_COORDINATION_WORLD_H_
