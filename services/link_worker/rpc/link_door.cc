#include "services/link_worker/rpc/link_door.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/request_ids.h"
#include "common/rpc/grpc_listener.h"
#include "common/rpc/rpc_call.h"
#include "common/status/status_macros.h"
#include "services/link_worker/rpc/link_rpc_service.h"

namespace epic {
namespace {

class RealLinkDoor final : public LinkDoor {
 public:
  RealLinkDoor(const LinkDoorOptions& options, Linker* linker, const Digest& model_identity,
               RpcObserver observer)
      : options_(options),
        executor_(options.worker_threads, options.worker_queue),
        request_ids_(options.id_seed),
        parts_{SystemClock::Get(), &executor_, &request_ids_, std::move(observer)},
        service_(linker, model_identity, &parts_, options.max_stream_buffer_bytes) {}
  ~RealLinkDoor() override { Stop(); }

  absl::Status Listen() {
    return listener_.Listen(
        options_.address,
        {.credentials = options_.credentials, .max_message_bytes = options_.max_message_bytes}, {&service_});
  }
  uint16_t port() const override { return listener_.port(); }
  void Drain() override { listener_.RefuseHealth(); }
  void Stop() override {
    listener_.Stop(options_.drain_ms);
    executor_.Stop();
  }

 private:
  const LinkDoorOptions options_;
  ThreadExecutor executor_;
  RequestIds request_ids_;
  const RpcParts parts_;
  LinkRpcService service_;
  GrpcListener listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDoor>> LinkDoor::Start(const LinkDoorOptions& options, Linker* linker,
                                                          const Digest& model_identity,
                                                          RpcObserver observer) {
  auto door = std::make_unique<RealLinkDoor>(options, linker, model_identity, std::move(observer));
  EPIC_RETURN_IF_ERROR(door->Listen());
  return door;
}

}  // namespace epic
