// epic.v1.ContextService: convert, call the core, answer. Stateless; what may block runs on the door's
// executor. A call that its client gives up cancels the work behind it.
#ifndef EPIC_SERVICES_ROUTER_RPC_CONTEXT_SERVICE_H_
#define EPIC_SERVICES_ROUTER_RPC_CONTEXT_SERVICE_H_

#include "common/rpc/rpc_call.h"
#include "epic/v1/contexts.grpc.pb.h"
#include "services/router/core/api.h"

namespace epic {

class ContextRpcService final : public v1::ContextService::CallbackService {
 public:
  // Both outlive the service.
  ContextRpcService(ContextApi* contexts, const RpcParts* parts) : contexts_(contexts), parts_(parts) {}

  grpc::ServerUnaryReactor* Create(grpc::CallbackServerContext* context,
                                   const v1::CreateContextRequest* request,
                                   v1::CreateContextResponse* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetContextRequest* request,
                                v1::Context* response) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListContextsRequest* request,
                                 v1::ListContextsResponse* response) override;
  grpc::ServerUnaryReactor* Update(grpc::CallbackServerContext* context,
                                   const v1::UpdateContextRequest* request, v1::Context* response) override;
  grpc::ServerUnaryReactor* Delete(grpc::CallbackServerContext* context,
                                   const v1::DeleteContextRequest* request,
                                   v1::DeleteContextResponse* response) override;

 private:
  grpc::ServerUnaryReactor* Erase(grpc::CallbackServerContext* context,
                                  const v1::DeleteContextRequest* request,
                                  v1::DeleteContextResponse* response);

  ContextApi* const contexts_;
  const RpcParts* const parts_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_RPC_CONTEXT_SERVICE_H_
