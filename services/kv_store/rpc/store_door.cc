#include "services/kv_store/rpc/store_door.h"

#include <utility>

#include "common/base/executor.h"
#include "common/base/request_ids.h"
#include "common/rpc/grpc_listener.h"
#include "common/rpc/kv_store/item_status.h"
#include "common/rpc/rpc_call.h"
#include "common/status/status_macros.h"
#include "services/kv_store/rpc/kv_store_service.h"

namespace epic::kv_store {
namespace {

class RealStoreDoor final : public StoreDoor {
 public:
  RealStoreDoor(const StoreDoorOptions& options, KvStore* store, const Clock* clock, RpcObserver observer)
      : options_(options),
        executor_(options.worker_threads, options.worker_queue),
        request_ids_(options.id_seed),
        parts_{clock, &executor_, &request_ids_, std::move(observer), &ToStoreGrpcStatus},
        service_(store, &parts_) {}
  ~RealStoreDoor() override { Stop(); }

  absl::Status Listen() {
    return listener_.Listen(options_.address, options_.max_message_bytes, {&service_});
  }
  uint16_t port() const override { return listener_.port(); }
  void Drain() override { listener_.RefuseHealth(); }
  void Stop() override {
    listener_.Stop(options_.drain_ms);
    executor_.Stop();
  }

 private:
  const StoreDoorOptions options_;
  ThreadExecutor executor_;
  RequestIds request_ids_;
  const RpcParts parts_;
  KvStoreRpcService service_;
  GrpcListener listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreDoor>> StoreDoor::Start(const StoreDoorOptions& options, KvStore* store,
                                                            const Clock* clock, RpcObserver observer) {
  auto door = std::make_unique<RealStoreDoor>(options, store, clock, std::move(observer));
  EPIC_RETURN_IF_ERROR(door->Listen());
  return door;
}

}  // namespace epic::kv_store
