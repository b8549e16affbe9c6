#include "common/rpc/kv_store/erase_calls.h"

#include <chrono>
#include <utility>
#include <vector>

namespace epic {

struct EraseCalls::Call {
  grpc::ClientContext context;
  v1::StoreDeleteContextRequest request;
  v1::StoreDeleteContextResponse response;
  ErasedDone erased;
};

EraseCalls::~EraseCalls() {
  MutexLock lock(&mu_);
  for (Call* call : running_) call->context.TryCancel();
  while (!running_.empty()) ended_.Wait(&mu_);
}

void EraseCalls::Start(std::string_view tenant, const CacheId& id, ErasedDone erased) {
  auto* call = new Call;  // freed by End
  call->request.set_tenant(tenant.data(), tenant.size());
  call->request.set_id(id.text());
  call->request.set_erase(v1::ERASE_MODE_WAIT);
  call->context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(wait_ms_));
  call->erased = std::move(erased);
  {
    MutexLock lock(&mu_);
    running_.insert(call);
  }
  channel_->stub()->async()->DeleteContext(&call->context, &call->request, &call->response,
                                           [this, call](const grpc::Status& status) { End(call, status); });
}

void EraseCalls::End(Call* call, const grpc::Status& status) {
  const std::string& node = channel_->options().address;
  std::vector<std::string> pending;
  if (!status.ok()) pending.push_back(node);
  for (const std::string& name : call->response.pending()) {
    pending.push_back(name == kLocalNode ? node : name);
  }
  call->erased(std::move(pending));
  MutexLock lock(&mu_);
  running_.erase(call);
  delete call;
  ended_.SignalAll();
}

}  // namespace epic
