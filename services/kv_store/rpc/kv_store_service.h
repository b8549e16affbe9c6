// epic.v1.KvStoreService over one store: check, convert, call, convert back. Owned by the door
// (store_door.h); stateless. What may block runs on the door's executor.
#ifndef EPIC_SERVICES_KV_STORE_RPC_KV_STORE_SERVICE_H_
#define EPIC_SERVICES_KV_STORE_RPC_KV_STORE_SERVICE_H_

#include "common/rpc/rpc_call.h"
#include "common/storage/kv_store.h"
#include "epic/v1/kv_store.grpc.pb.h"

namespace epic::kv_store {

class KvStoreRpcService final : public v1::KvStoreService::CallbackService {
 public:
  // Both outlive the service.
  KvStoreRpcService(KvStore* store, const RpcParts* parts) : store_(store), parts_(parts) {}

  // --- records (record_calls.cc)
  grpc::ServerUnaryReactor* CreateContext(grpc::CallbackServerContext* context,
                                          const v1::StoreCreateContextRequest* request,
                                          v1::StoreCreateContextResponse* response) override;
  grpc::ServerUnaryReactor* GetContexts(grpc::CallbackServerContext* context,
                                        const v1::StoreGetContextsRequest* request,
                                        v1::StoreGetContextsResponse* response) override;
  grpc::ServerUnaryReactor* FindByName(grpc::CallbackServerContext* context,
                                       const v1::StoreFindByNameRequest* request,
                                       v1::StoredContext* response) override;
  grpc::ServerUnaryReactor* GetTokens(grpc::CallbackServerContext* context,
                                      const v1::StoreGetTokensRequest* request,
                                      v1::StoreGetTokensResponse* response) override;
  grpc::ServerUnaryReactor* ListContexts(grpc::CallbackServerContext* context,
                                         const v1::StoreListContextsRequest* request,
                                         v1::StoreListContextsResponse* response) override;
  grpc::ServerUnaryReactor* UpdateContext(grpc::CallbackServerContext* context,
                                          const v1::StoreUpdateContextRequest* request,
                                          v1::StoredContext* response) override;
  grpc::ServerUnaryReactor* DeleteContext(grpc::CallbackServerContext* context,
                                          const v1::StoreDeleteContextRequest* request,
                                          v1::StoreDeleteContextResponse* response) override;
  grpc::ServerUnaryReactor* SetState(grpc::CallbackServerContext* context,
                                     const v1::StoreSetStateRequest* request,
                                     v1::StoreSetStateResponse* response) override;
  grpc::ServerUnaryReactor* Touch(grpc::CallbackServerContext* context, const v1::StoreTouchRequest* request,
                                  v1::StoreTouchResponse* response) override;
  grpc::ServerUnaryReactor* Usage(grpc::CallbackServerContext* context, const v1::StoreUsageRequest* request,
                                  v1::StoreUsageResponse* response) override;

 private:
  KvStore* const store_;
  const RpcParts* const parts_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_KV_STORE_SERVICE_H_
