// epic.v1.ModelService: convert, call the core, answer. Stateless; calls run on the door's executor.
#ifndef EPIC_SERVICES_ROUTER_RPC_MODEL_SERVICE_H_
#define EPIC_SERVICES_ROUTER_RPC_MODEL_SERVICE_H_

#include "common/rpc/rpc_call.h"
#include "epic/v1/models.grpc.pb.h"
#include "services/router/core/api.h"

namespace epic {

class ModelRpcService final : public v1::ModelService::CallbackService {
 public:
  // Both outlive the service.
  ModelRpcService(const ModelApi* models, const RpcParts* parts) : models_(models), parts_(parts) {}

  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context, const v1::ListModelsRequest* request,
                                 v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* Get(grpc::CallbackServerContext* context, const v1::GetModelRequest* request,
                                v1::Model* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* ApplyTemplate(grpc::CallbackServerContext* context,
                                          const v1::ApplyTemplateRequest* request,
                                          v1::ApplyTemplateResponse* response) override;

 private:
  const ModelApi* const models_;
  const RpcParts* const parts_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_RPC_MODEL_SERVICE_H_
