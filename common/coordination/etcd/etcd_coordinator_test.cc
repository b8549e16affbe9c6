#include "common/coordination/etcd/etcd_coordinator.h"

#include <memory>

#include <gtest/gtest.h>

#include "common/coordination/etcd/testing/etcd_world.h"
#include "common/coordination/testing/coordinator_contract.h"

namespace epic::testing {
namespace {

// One cluster for all tests of its size; they clear what it stores.
template <size_t kMembers>
EtcdProcesses* SharedEtcd() {
  static auto* const etcd = new std::unique_ptr<EtcdProcesses>(std::make_unique<EtcdProcesses>(kMembers));
  class Ending final : public ::testing::Environment {
    void TearDown() override { etcd->reset(); }
  };
  static auto* const ending = ::testing::AddGlobalTestEnvironment(new Ending);
  static_cast<void>(ending);
  return etcd->get();
}

template <size_t kMembers>
std::unique_ptr<CoordinationWorld> MakeWorld() {
  if (!EtcdProcesses::Installed()) return nullptr;
  return std::make_unique<EtcdWorld>(SharedEtcd<kMembers>());
}

INSTANTIATE_TEST_SUITE_P(EtcdOfOne, CoordinatorContractTest, ::testing::Values(MakeWorld<1>));
INSTANTIATE_TEST_SUITE_P(EtcdOfThree, CoordinatorContractTest, ::testing::Values(MakeWorld<3>));

}  // namespace
}  // namespace epic::testing
