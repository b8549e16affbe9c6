#include "services/kv_store/replication/rpc/replication_service.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/status/error.h"
#include "services/kv_store/replication/rpc/replica_convert.h"
#include "services/kv_store/replication/rpc/replica_status.h"

namespace epic::kv_store {
namespace {

// A call that ends once: with its answer, or as soon as nobody waits for one. Frees itself when gRPC is done
// with it.
class PeerCall final : public grpc::ServerUnaryReactor {
 public:
  // The right to end a call; whoever may answer it shares this, also when the call is long over.
  class Ending {
   public:
    explicit Ending(PeerCall* call) : call_(call) {}
    // nullptr: it has ended.
    PeerCall* Take() {
      MutexLock lock(&mu_);
      return std::exchange(call_, nullptr);
    }

   private:
    Mutex mu_;
    PeerCall* call_ ABSL_GUARDED_BY(mu_);
  };

  PeerCall(const RpcParts* parts, grpc::CallbackServerContext* context, std::string_view name,
           std::atomic<uint32_t>* calls)
      : calls_(calls), call_(parts, context, name), ending_(std::make_shared<Ending>(this)) {}

  const RequestScope& scope() const { return call_.scope(); }
  const std::shared_ptr<Ending>& ending() const { return ending_; }
  // By whoever took the right to it. The call may be gone when it returns.
  void End(const absl::Status& status) { Finish(call_.SetOutcome(status)); }

  void OnCancel() override {
    call_.Cancel(/*by_client=*/true);
    if (ending_->Take() != this) return;
    // Nobody is to take that for what the node says.
    call_.SetOutcome(Error(ErrorCode::kClientGone, "nobody waits for the answer"));
    Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    call_.Report();
    --*calls_;
    delete this;
  }

 private:
  std::atomic<uint32_t>* const calls_;
  RpcCall call_;
  const std::shared_ptr<Ending> ending_;
};

RpcParts WithOwnErrors(RpcParts parts) {
  parts.to_grpc = &ToReplicaGrpcStatus;
  return parts;
}

template <typename Request>
absl::Status CheckTime(const Request&, int64_t) {
  return absl::OkStatus();
}
absl::Status CheckTime(const ChangeRequest& request, int64_t latest_unix_ms) {
  if (request.until_unix_ms <= latest_unix_ms) return absl::OkStatus();
  return Error(ErrorCode::kInvalidRequest, "the change may begin too long from now: look at the clocks",
               "until_unix_ms");
}

}  // namespace

ReplicationRpcService::ReplicationRpcService(const RpcParts& parts, std::shared_ptr<ReplicaPeer> node,
                                             ReplicationServiceOptions options)
    : parts_(WithOwnErrors(parts)), node_(std::move(node)), options_(std::move(options)) {}

absl::Status ReplicationRpcService::Admit(const grpc::CallbackServerContext& context) const {
  if (options_.node_role.empty()) return absl::OkStatus();
  const auto peer = context.auth_context();
  const auto names = peer->FindPropertyValues(GRPC_PEER_DNS_PROPERTY_NAME);
  const bool is_node =
      peer->IsPeerAuthenticated() && std::any_of(names.begin(), names.end(), [this](const auto& name) {
        return std::string_view(name.data(), name.size()) == options_.node_role;
      });
  if (is_node) return absl::OkStatus();
  return Error(
      ErrorCode::kPermissionDenied,
      "only store nodes may call: give this one a certificate with the DNS name " + options_.node_role);
}

template <typename Request, typename Reply, typename ProtoRequest, typename ProtoReply>
grpc::ServerUnaryReactor* ReplicationRpcService::Pass(grpc::CallbackServerContext* context,
                                                      std::string_view name,
                                                      void (ReplicaPeer::*method)(Request, int64_t,
                                                                                  ReplicaPeer::Done<Reply>),
                                                      const ProtoRequest& proto, ProtoReply* response) {
  const bool full = ++calls_ > options_.most_calls;
  auto* const call = new PeerCall(&parts_, context, name, &calls_);  // frees itself
  const auto ending = call->ending();
  absl::Status status = full ? DoorIsFull() : Admit(*context);
  absl::StatusOr<Request> request = absl::CancelledError();
  if (status.ok()) {
    request = FromProto(proto);
    status = request.ok() ? CheckTime(*request, parts_.clock->UnixMs() + options_.most_ahead_ms)
                          : request.status();
  }
  if (!status.ok()) {
    if (ending->Take() != nullptr) call->End(status);
    return call;
  }
  const int64_t deadline_ns = call->scope().deadline_steady_ns != 0 ? call->scope().deadline_steady_ns
                                                                    : std::numeric_limits<int64_t>::max();
  ((*node_).*method)(*std::move(request), deadline_ns, [ending, response](absl::StatusOr<Reply> reply) {
    PeerCall* const answered = ending->Take();
    if (answered == nullptr) return;
    if (reply.ok()) *response = ToProto(*reply);
    answered->End(reply.status());
  });
  return call;
}

grpc::ServerUnaryReactor* ReplicationRpcService::Send(grpc::CallbackServerContext* context,
                                                      const v1::ReplicaSendRequest* request,
                                                      v1::ReplicaSendResponse* response) {
  return Pass(context, "replica_send", &ReplicaPeer::Send, *request, response);
}
grpc::ServerUnaryReactor* ReplicationRpcService::Fetch(grpc::CallbackServerContext* context,
                                                       const v1::ReplicaFetchRequest* request,
                                                       v1::ReplicaFetchResponse* response) {
  return Pass(context, "replica_fetch", &ReplicaPeer::Fetch, *request, response);
}
grpc::ServerUnaryReactor* ReplicationRpcService::Query(grpc::CallbackServerContext* context,
                                                       const v1::ReplicaQueryRequest* request,
                                                       v1::ReplicaQueryResponse* response) {
  return Pass(context, "replica_query", &ReplicaPeer::Query, *request, response);
}
grpc::ServerUnaryReactor* ReplicationRpcService::Name(grpc::CallbackServerContext* context,
                                                      const v1::ReplicaNameRequest* request,
                                                      v1::ReplicaNameResponse* response) {
  return Pass(context, "replica_name", &ReplicaPeer::Name, *request, response);
}
grpc::ServerUnaryReactor* ReplicationRpcService::Beat(grpc::CallbackServerContext* context,
                                                      const v1::ReplicaBeatRequest* request,
                                                      v1::ReplicaBeatResponse* response) {
  return Pass(context, "replica_beat", &ReplicaPeer::Beat, *request, response);
}
grpc::ServerUnaryReactor* ReplicationRpcService::Erase(grpc::CallbackServerContext* context,
                                                       const v1::ReplicaEraseRequest* request,
                                                       v1::ReplicaEraseResponse* response) {
  return Pass(context, "replica_erase", &ReplicaPeer::Erase, *request, response);
}
grpc::ServerUnaryReactor* ReplicationRpcService::Change(grpc::CallbackServerContext* context,
                                                        const v1::ReplicaChangeRequest* request,
                                                        v1::ReplicaChangeResponse* response) {
  return Pass(context, "replica_change", &ReplicaPeer::Change, *request, response);
}

}  // namespace epic::kv_store
