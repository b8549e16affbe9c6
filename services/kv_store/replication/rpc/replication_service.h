// epic.v1.ReplicationService, which hands what other nodes ask to a ReplicaPeer: the LocalPeer of this
// process's Replicator, on whose executor it runs.
//
// Messages are read and checked on threads of gRPC; nothing blocks them. A call that is not answered, as
// peer.h allows, ends with its caller's deadline or connection, or when the server stops. At most most_calls
// are under way; one more is refused with queue_full. Thread-safe; outlives the server.
//
// Whoever is no node may not call: where mutual TLS is on, name in `node_role` the DNS name that certificates
// of nodes bear besides their own.
#ifndef EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICATION_SERVICE_H_
#define EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICATION_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/rpc/rpc_call.h"
#include "epic/v1/replication.grpc.pb.h"
#include "services/kv_store/replication/peer.h"

namespace epic::kv_store {

struct ReplicationServiceOptions {
  std::string node_role;  // empty: whoever the door lets in is a node
  uint32_t most_calls = 4096;
  // How far a change may ask to be begun in the future: more is no deadline, but a clock that is wrong.
  int64_t most_ahead_ms = 3'600'000;
};

class ReplicationRpcService final : public v1::ReplicationService::CallbackService {
 public:
  // `parts`: without an executor; it outlives the service.
  ReplicationRpcService(const RpcParts& parts, std::shared_ptr<ReplicaPeer> node,
                        ReplicationServiceOptions options = {});

  grpc::ServerUnaryReactor* Send(grpc::CallbackServerContext* context, const v1::ReplicaSendRequest* request,
                                 v1::ReplicaSendResponse* response) override;
  grpc::ServerUnaryReactor* Fetch(grpc::CallbackServerContext* context,
                                  const v1::ReplicaFetchRequest* request,
                                  v1::ReplicaFetchResponse* response) override;
  grpc::ServerUnaryReactor* Query(grpc::CallbackServerContext* context,
                                  const v1::ReplicaQueryRequest* request,
                                  v1::ReplicaQueryResponse* response) override;
  grpc::ServerUnaryReactor* Name(grpc::CallbackServerContext* context, const v1::ReplicaNameRequest* request,
                                 v1::ReplicaNameResponse* response) override;
  grpc::ServerUnaryReactor* Beat(grpc::CallbackServerContext* context, const v1::ReplicaBeatRequest* request,
                                 v1::ReplicaBeatResponse* response) override;
  grpc::ServerUnaryReactor* Erase(grpc::CallbackServerContext* context,
                                  const v1::ReplicaEraseRequest* request,
                                  v1::ReplicaEraseResponse* response) override;
  grpc::ServerUnaryReactor* Change(grpc::CallbackServerContext* context,
                                   const v1::ReplicaChangeRequest* request,
                                   v1::ReplicaChangeResponse* response) override;

  uint32_t calls() const { return calls_.load(); }

 private:
  absl::Status Admit(const grpc::CallbackServerContext& context) const;
  template <typename Request, typename Reply, typename ProtoRequest, typename ProtoReply>
  grpc::ServerUnaryReactor* Pass(grpc::CallbackServerContext* context, std::string_view name,
                                 void (ReplicaPeer::*method)(Request, int64_t, ReplicaPeer::Done<Reply>),
                                 const ProtoRequest& request, ProtoReply* response);

  const RpcParts parts_;
  const std::shared_ptr<ReplicaPeer> node_;
  const ReplicationServiceOptions options_;
  std::atomic<uint32_t> calls_{0};
};

}  // namespace epic::kv_store

#endif  // EPIC_SERVICES_KV_STORE_REPLICATION_RPC_REPLICATION_SERVICE_H_
