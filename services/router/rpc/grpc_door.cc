#include "services/router/rpc/grpc_door.h"

#include <utility>

#include "common/rpc/grpc_listener.h"
#include "services/router/rpc/chat_service.h"
#include "services/router/rpc/context_service.h"
#include "services/router/rpc/model_service.h"

namespace epic {
namespace {

class RealGrpcDoor final : public GrpcDoor {
 public:
  RealGrpcDoor(const GrpcDoorOptions& options, const Apis& apis, const Clock* clock, RpcObserver observer)
      : options_(options),
        executor_(options.worker_threads, options.worker_queue),
        request_ids_(options.id_seed),
        parts_{clock, &executor_, &request_ids_, std::move(observer)},
        contexts_(apis.contexts, &parts_),
        chat_(apis.chat, &parts_, options.max_stream_buffer_bytes),
        models_(apis.models, &parts_) {}
  ~RealGrpcDoor() override { Stop(); }

  absl::Status Listen() {
    return listener_.Listen(
        options_.address,
        {.credentials = options_.credentials, .max_message_bytes = options_.max_message_bytes},
        {&contexts_, &chat_, &models_});
  }
  uint16_t port() const override { return listener_.port(); }
  void Drain() override { listener_.RefuseHealth(); }
  void Stop() override {
    listener_.Stop(options_.drain_ms);
    executor_.Stop();
  }

 private:
  const GrpcDoorOptions options_;
  ThreadExecutor executor_;
  RequestIds request_ids_;
  const RpcParts parts_;
  ContextRpcService contexts_;
  ChatRpcService chat_;
  ModelRpcService models_;
  GrpcListener listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcDoor>> GrpcDoor::Start(const GrpcDoorOptions& options, const Apis& apis,
                                                          const Clock* clock, RpcObserver observer) {
  auto door = std::make_unique<RealGrpcDoor>(options, apis, clock, std::move(observer));
  if (absl::Status status = door->Listen(); !status.ok()) return status;
  return door;
}

}  // namespace epic
