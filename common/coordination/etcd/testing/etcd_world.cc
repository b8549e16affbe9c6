#include "common/coordination/etcd/testing/etcd_world.h"

#include <grpcpp/create_channel.h>

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/coordination/testing/calls.h"

namespace epic::testing {

bool AwaitReal(int64_t limit_ms, const std::function<bool()>& condition) {
  const SystemClock* clock = SystemClock::Get();
  const int64_t end_ns = clock->SteadyNs() + limit_ms * 1'000'000;
  Mutex mu;
  CondVar never;
  while (!condition()) {
    if (clock->SteadyNs() > end_ns) return false;
    MutexLock lock(&mu);
    never.WaitForMs(&mu, 5);
  }
  return true;
}

EtcdWorld::EtcdWorld(EtcdProcesses* etcd) : etcd_(etcd) {
  Coordinator* coordinator = NewCoordinator();
  for (bool cleared = false; !cleared;) {
    Gathered<absl::StatusOr<TransactionResult>> answers;
    coordinator->Commit({{}, {Change::Delete(KeyRange::Prefix(""))}}, answers.adder());
    EPIC_CHECK(Await([&] { return answers.size() == 1; }));
    cleared = answers.size() == 1 && answers.all()[0].ok();
  }
}

Coordinator* EtcdWorld::NewCoordinator() { return NewEtcd(); }

EtcdCoordinator* EtcdWorld::NewEtcd(EtcdOptions options) {
  if (options.endpoints.empty()) options.endpoints = etcd_->addresses();
  options.timers = &timers_;
  coordinators_.push_back(std::make_unique<EtcdCoordinator>(options));
  return coordinators_.back().get();
}

void EtcdWorld::Compact(Revision now) {
  const auto channel = grpc::CreateChannel(etcd_->address(0), grpc::InsecureChannelCredentials());
  const auto stub = etcdserverpb::KV::NewStub(channel);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  etcdserverpb::CompactionRequest request;
  request.set_revision(now);
  request.set_physical(true);
  etcdserverpb::CompactionResponse response;
  EPIC_CHECK(stub->Compact(&context, request, &response).ok());
}

}  // namespace epic::testing
