#include "services/compile_worker/rpc/compile_door.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/request_ids.h"
#include "common/rpc/grpc_listener.h"
#include "common/rpc/rpc_call.h"
#include "common/status/status_macros.h"
#include "services/compile_worker/rpc/compile_rpc_service.h"

namespace epic {
namespace {

class RealCompileDoor final : public CompileDoor {
 public:
  RealCompileDoor(const CompileDoorOptions& options, Compiler* compiler,
                  std::function<absl::Status(const CompileJob&)> check, RpcObserver observer)
      : options_(options),
        request_ids_(options.id_seed),
        parts_{SystemClock::Get(), nullptr, &request_ids_, std::move(observer)},
        service_(compiler, std::move(check), &parts_) {}
  ~RealCompileDoor() override { Stop(); }

  absl::Status Listen() {
    return listener_.Listen(
        options_.address,
        {.credentials = options_.credentials, .max_message_bytes = options_.max_message_bytes}, {&service_});
  }
  uint16_t port() const override { return listener_.port(); }
  void Drain() override { listener_.RefuseHealth(); }
  void Stop() override { listener_.Stop(options_.drain_ms); }

 private:
  const CompileDoorOptions options_;
  RequestIds request_ids_;
  const RpcParts parts_;  // nothing here blocks: no executor
  CompileRpcService service_;
  GrpcListener listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CompileDoor>> CompileDoor::Start(
    const CompileDoorOptions& options, Compiler* compiler,
    std::function<absl::Status(const CompileJob&)> check, RpcObserver observer) {
  auto door = std::make_unique<RealCompileDoor>(options, compiler, std::move(check), std::move(observer));
  EPIC_RETURN_IF_ERROR(door->Listen());
  return door;
}

}  // namespace epic
