// epic.v1.KvStoreService over one store: check, convert, call, convert back. Owned by the door
// (store_door.h); stateless. What may block runs on the door's executors: what needs the disk on one of its
// own, so that nothing else waits behind it.
#ifndef EPIC_SERVICES_KV_STORE_RPC_KV_STORE_SERVICE_H_
#define EPIC_SERVICES_KV_STORE_RPC_KV_STORE_SERVICE_H_

#include <grpcpp/support/byte_buffer.h>

#include <functional>

#include "common/rpc/rpc_call.h"
#include "common/storage/kv_store.h"
#include "epic/v1/kv_store.grpc.pb.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/rpc/attachments.h"
#include "services/kv_store/rpc/event_stream.h"
#include "services/kv_store/rpc/layer_streams.h"
#include "services/kv_store/rpc/store_door.h"

namespace epic::kv_store {

// Layers pass as bytes, without a copy into messages.
using KvStoreServiceBase = v1::KvStoreService::WithRawCallbackMethod_WriteLayers<
    v1::KvStoreService::WithRawCallbackMethod_ReadLayers<v1::KvStoreService::CallbackService>>;

class KvStoreRpcService final : public KvStoreServiceBase {
 public:
  // All outlive the service. `disk`: for calls that may wait for the disk. `issue_lane_ticket`: as OtherWays
  // has it. `on_lookup` hears of every object that was asked for; may be empty.
  KvStoreRpcService(const StreamParts* streams, const RpcParts* disk, Attachments* attachments,
                    std::function<absl::StatusOr<std::string>()> issue_lane_ticket, LookupObserver on_lookup)
      : node_(streams->node),
        store_(streams->node->store()),
        parts_(streams->rpc),
        disk_parts_(disk),
        streams_(streams),
        attachments_(attachments),
        issue_lane_ticket_(std::move(issue_lane_ticket)),
        on_lookup_(std::move(on_lookup)) {}

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

  // --- objects (object_calls.cc)
  grpc::ServerUnaryReactor* Reserve(grpc::CallbackServerContext* context,
                                    const v1::ReserveObjectsRequest* request,
                                    v1::ReserveObjectsResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const v1::CommitObjectsRequest* request,
                                   v1::CommitObjectsResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const v1::AbortRequest* request,
                                  v1::AbortResponse* response) override;
  grpc::ServerUnaryReactor* Acquire(grpc::CallbackServerContext* context,
                                    const v1::AcquireObjectsRequest* request,
                                    v1::AcquireObjectsResponse* response) override;
  grpc::ServerUnaryReactor* Confirm(grpc::CallbackServerContext* context, const v1::ConfirmRequest* request,
                                    v1::LeaseStatesResponse* response) override;
  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context, const v1::RenewRequest* request,
                                  v1::LeaseStatesResponse* response) override;
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context, const v1::ReleaseRequest* request,
                                    v1::LeaseStatesResponse* response) override;
  grpc::ServerUnaryReactor* Exists(grpc::CallbackServerContext* context, const v1::ExistsRequest* request,
                                   v1::ExistsResponse* response) override;
  grpc::ServerUnaryReactor* Drop(grpc::CallbackServerContext* context, const v1::DropObjectsRequest* request,
                                 v1::DropObjectsResponse* response) override;

  grpc::ServerUnaryReactor* IssueLaneTicket(grpc::CallbackServerContext* context,
                                            const v1::LaneTicketRequest* request,
                                            v1::LaneTicketResponse* response) override;

  // --- following the node (event_calls.cc)
  grpc::ServerUnaryReactor* Inventory(grpc::CallbackServerContext* context,
                                      const v1::InventoryRequest* request,
                                      v1::InventoryPage* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::ExplainRequest* request,
                                    v1::ExplainResponse* response) override;

  // --- streams (attachments.h, layer_streams.h, event_stream.h)
  using KvStoreServiceBase::ReadLayers;
  using KvStoreServiceBase::WriteLayers;
  grpc::ServerWriteReactor<v1::AttachResponse>* Attach(grpc::CallbackServerContext* context,
                                                       const v1::AttachRequest* request) override {
    return attachments_->Attach(context, *request);
  }
  grpc::ServerReadReactor<grpc::ByteBuffer>* WriteLayers(grpc::CallbackServerContext* context,
                                                         grpc::ByteBuffer* response) override {
    return ReceiveLayers(streams_, context, response);
  }
  grpc::ServerWriteReactor<grpc::ByteBuffer>* ReadLayers(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override {
    return SendLayers(streams_, context, request);
  }
  grpc::ServerWriteReactor<v1::EventPage>* Subscribe(grpc::CallbackServerContext* context,
                                                     const v1::SubscribeRequest* request) override {
    return SendEvents(streams_, context, *request);
  }

 private:
  void EraseContext(const v1::StoreDeleteContextRequest& request, const RequestScope& scope,
                    const std::function<void(absl::StatusOr<v1::StoreDeleteContextResponse>)>& done);
  // Where a read of these objects is made: apart where it may have to wait for the disk.
  const RpcParts* PartsFor(const v1::AcquireObjectsRequest& request) const;

  StoreNode* const node_;
  KvStore* const store_;
  const RpcParts* const parts_;
  const RpcParts* const disk_parts_;
  const StreamParts* const streams_;
  Attachments* const attachments_;
  const std::function<absl::StatusOr<std::string>()> issue_lane_ticket_;  // empty: there are none
  const LookupObserver on_lookup_;
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_RPC_KV_STORE_SERVICE_H_
