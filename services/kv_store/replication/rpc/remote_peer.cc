#include "services/kv_store/replication/rpc/remote_peer.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include <atomic>
#include <utility>

#include "epic/v1/replication.grpc.pb.h"
#include "services/kv_store/replication/rpc/replica_convert.h"
#include "services/kv_store/replication/rpc/replica_status.h"

namespace epic::kv_store {
namespace {

constexpr int kMinBackoffMs = 100;
constexpr int kMaxBackoffMs = 1000;
constexpr int kConnectMs = 5000;  // a try has at least so long, handshakes included
// A connection ends when what was sent on it is not taken for so long. gRPC does that where it pings, which
// servers allow every five minutes.
constexpr int kNotTakenMs = 10'000;
constexpr int kPingMs = 330'000;

std::shared_ptr<grpc::Channel> Connect(const RemotePeerOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMaxReplicaMessageBytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMaxReplicaMessageBytes));
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kMinBackoffMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kNotTakenMs);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return MakeChannel(options.address, options.credentials.get(), arguments);
}

void SetDeadline(grpc::ClientContext* context, int64_t left_ns) {
  context->set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left_ns, GPR_TIMESPAN)));
}

}  // namespace

struct RemotePeer::Way {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::ReplicationService::Stub> stub;
  std::atomic<uint32_t> calls{0};
};

RemotePeer::RemotePeer(const RemotePeerOptions& options)
    : clock_(options.clock), most_calls_(options.most_calls), way_(std::make_shared<Way>()) {
  way_->channel = Connect(options);
  way_->stub = v1::ReplicationService::NewStub(way_->channel);
}

RemotePeer::~RemotePeer() = default;

template <typename ProtoReply, typename Start, typename Request, typename Reply>
void RemotePeer::Call(Start start, const Request& request, int64_t deadline_ns, Done<Reply> done) {
  struct UnderWay {
    explicit UnderWay(std::shared_ptr<Way> used) : way(std::move(used)) {}
    ~UnderWay() { --way->calls; }
    const std::shared_ptr<Way> way;
    grpc::ClientContext context;
    decltype(ToProto(std::declval<const Request&>())) request;
    ProtoReply reply;
  };
  const int64_t left_ns = deadline_ns - clock_->SteadyNs();
  if (left_ns <= 0) return done(absl::UnavailableError("the call came too late to be sent"));
  if (++way_->calls > most_calls_) {
    --way_->calls;
    return done(absl::UnavailableError("too many calls to a store node are under way"));
  }
  const auto call = std::make_shared<UnderWay>(way_);
  call->request = ToProto(request);
  SetDeadline(&call->context, left_ns);
  start(way_->stub.get(), &call->context, &call->request, &call->reply,
        [call, done = std::move(done)](const grpc::Status& status) {
          if (!status.ok()) return done(FromReplicaGrpcStatus(status));
          absl::StatusOr<Reply> reply = FromProto(call->reply);
          if (reply.ok()) return done(std::move(reply));
          done(absl::UnavailableError("a store node gave an answer that cannot be read"));
        });
}

void RemotePeer::Send(SendRequest request, int64_t deadline_ns, Done<SendReply> done) {
  Call<v1::ReplicaSendResponse>([](auto* stub, auto... call) { stub->async()->Send(std::move(call)...); },
                                request, deadline_ns, std::move(done));
}
void RemotePeer::Fetch(FetchRequest request, int64_t deadline_ns, Done<FetchReply> done) {
  Call<v1::ReplicaFetchResponse>([](auto* stub, auto... call) { stub->async()->Fetch(std::move(call)...); },
                                 request, deadline_ns, std::move(done));
}
void RemotePeer::Query(QueryRequest request, int64_t deadline_ns, Done<QueryReply> done) {
  Call<v1::ReplicaQueryResponse>([](auto* stub, auto... call) { stub->async()->Query(std::move(call)...); },
                                 request, deadline_ns, std::move(done));
}
void RemotePeer::Name(NameRequest request, int64_t deadline_ns, Done<NameReply> done) {
  Call<v1::ReplicaNameResponse>([](auto* stub, auto... call) { stub->async()->Name(std::move(call)...); },
                                request, deadline_ns, std::move(done));
}
void RemotePeer::Beat(BeatRequest request, int64_t deadline_ns, Done<BeatReply> done) {
  Call<v1::ReplicaBeatResponse>([](auto* stub, auto... call) { stub->async()->Beat(std::move(call)...); },
                                request, deadline_ns, std::move(done));
}
void RemotePeer::Erase(EraseRequest request, int64_t deadline_ns, Done<EraseReply> done) {
  Call<v1::ReplicaEraseResponse>([](auto* stub, auto... call) { stub->async()->Erase(std::move(call)...); },
                                 request, deadline_ns, std::move(done));
}
void RemotePeer::Change(ChangeRequest request, int64_t deadline_ns, Done<ChangeReply> done) {
  Call<v1::ReplicaChangeResponse>([](auto* stub, auto... call) { stub->async()->Change(std::move(call)...); },
                                  request, deadline_ns, std::move(done));
}

}  // namespace epic::kv_store
