// LinkWorkerService: checks a prompt, hands it to the core on the executor, streams what comes. A thin
// handler over Linker. Thread-safe.
#ifndef EPIC_SERVICES_LINK_WORKER_RPC_LINK_RPC_SERVICE_H_
#define EPIC_SERVICES_LINK_WORKER_RPC_LINK_RPC_SERVICE_H_

#include <cstddef>

#include "common/base/digest.h"
#include "common/rpc/rpc_call.h"
#include "epic/v1/link.grpc.pb.h"
#include "services/worker_api/linker.h"

namespace epic {

class LinkRpcService final : public v1::LinkWorkerService::CallbackService {
 public:
  // Both pointers outlive the service. max_buffer_bytes: text that waits for one reader.
  LinkRpcService(Linker* linker, const Digest& model_identity, const RpcParts* parts, size_t max_buffer_bytes)
      : linker_(linker),
        model_identity_(model_identity),
        parts_(parts),
        max_buffer_bytes_(max_buffer_bytes) {}

  grpc::ServerWriteReactor<v1::LinkEvent>* Link(grpc::CallbackServerContext* context,
                                                const v1::LinkPromptRequest* request) override;

 private:
  Linker* const linker_;
  const Digest model_identity_;
  const RpcParts* const parts_;
  const size_t max_buffer_bytes_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_LINK_WORKER_RPC_LINK_RPC_SERVICE_H_
