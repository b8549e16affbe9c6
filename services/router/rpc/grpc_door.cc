#include "services/router/rpc/grpc_door.h"

#include <chrono>
#include <mutex>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>

#include "services/router/rpc/chat_service.h"
#include "services/router/rpc/context_service.h"
#include "services/router/rpc/model_service.h"

namespace epic {
namespace {

void InitPluginsOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

class RealGrpcDoor final : public GrpcDoor {
 public:
  RealGrpcDoor(const GrpcDoorOptions& options, const Apis& apis, const Clock* clock, RpcObserver observer)
      : options_(options),
        executor_(options.worker_threads, options.worker_queue),
        parts_{clock, &executor_, std::move(observer)},
        contexts_(apis.contexts, &parts_),
        chat_(apis.chat, &parts_, options.max_stream_buffer_bytes),
        models_(apis.models, &parts_) {}
  ~RealGrpcDoor() override { Stop(); }

  absl::Status Listen() {
    InitPluginsOnce();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials(), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(static_cast<int>(options_.max_message_bytes));
    builder.RegisterService(&contexts_);
    builder.RegisterService(&chat_);
    builder.RegisterService(&models_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError("gRPC cannot listen on " + options_.address +
                                    ": is the port taken or the address not of this machine?");
    }
    port_ = static_cast<uint16_t>(port);
    server_->GetHealthCheckService()->SetServingStatus(true);
    return absl::OkStatus();
  }

  uint16_t port() const override { return port_; }

  void Drain() override { server_->GetHealthCheckService()->SetServingStatus(false); }

  void Stop() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(options_.drain_ms));
    server_->Wait();
    server_.reset();
    executor_.Stop();
  }

 private:
  const GrpcDoorOptions options_;
  ThreadExecutor executor_;
  const RpcParts parts_;
  ContextRpcService contexts_;
  ChatRpcService chat_;
  ModelRpcService models_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcDoor>> GrpcDoor::Start(const GrpcDoorOptions& options, const Apis& apis,
                                                          const Clock* clock, RpcObserver observer) {
  auto door = std::make_unique<RealGrpcDoor>(options, apis, clock, std::move(observer));
  if (absl::Status status = door->Listen(); !status.ok()) return status;
  return door;
}

}  // namespace epic
