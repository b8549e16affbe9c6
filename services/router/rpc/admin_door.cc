#include "services/router/rpc/admin_door.h"

#include <utility>

#include "common/base/executor.h"
#include "common/rpc/grpc_listener.h"
#include "common/rpc/rpc_call.h"
#include "common/status/status_macros.h"
#include "epic/v1/admin.grpc.pb.h"

namespace epic {
namespace {

constexpr size_t kMaxWaiting = 16;

// epic.v1.AdminService: call the api, answer. Stateless.
class AdminRpcService final : public v1::AdminService::CallbackService {
 public:
  AdminRpcService(AdminApi* admin, const RpcParts* parts) : admin_(admin), parts_(parts) {}

  grpc::ServerUnaryReactor* GetConfig(grpc::CallbackServerContext* context, const v1::GetConfigRequest*,
                                      v1::GetConfigResponse* response) override {
    return Answer(parts_, context, "get_config", response,
                  [this](const RequestScope&) -> absl::StatusOr<v1::GetConfigResponse> {
                    v1::GetConfigResponse answer;
                    for (const EffectiveSetting& setting : admin_->Settings()) {
                      v1::Setting& row = *answer.add_settings();
                      row.set_name(setting.name);
                      row.set_value(setting.value);
                      row.set_source(setting.source);
                    }
                    return answer;
                  });
  }

  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelResponse* response) override {
    return Answer(parts_, context, "set_log_level", response,
                  [this, request](const RequestScope&) -> absl::StatusOr<v1::SetLogLevelResponse> {
                    EPIC_ASSIGN_OR_RETURN(std::string previous, admin_->SetLogLevel(request->level()));
                    v1::SetLogLevelResponse answer;
                    answer.set_previous(std::move(previous));
                    return answer;
                  });
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const v1::DrainRequest*,
                                  v1::DrainResponse* response) override {
    return Answer(parts_, context, "drain", response,
                  [this](const RequestScope&) -> absl::StatusOr<v1::DrainResponse> {
                    v1::DrainResponse answer;
                    answer.set_running(admin_->Drain());
                    return answer;
                  });
  }

 private:
  AdminApi* const admin_;
  const RpcParts* const parts_;
};

class RealAdminDoor final : public AdminDoor {
 public:
  RealAdminDoor(const AdminDoorOptions& options, AdminApi* admin, const Clock* clock, RpcObserver observer)
      : options_(options),
        executor_(1, kMaxWaiting),
        request_ids_(options.id_seed),
        parts_{clock, &executor_, &request_ids_, std::move(observer)},
        service_(admin, &parts_) {}
  ~RealAdminDoor() override { Stop(); }

  absl::Status Listen() {
    return listener_.Listen(
        options_.address,
        {.credentials = options_.credentials, .max_message_bytes = options_.max_message_bytes}, {&service_});
  }
  uint16_t port() const override { return listener_.port(); }
  void Stop() override {
    listener_.Stop(options_.drain_ms);
    executor_.Stop();
  }

 private:
  const AdminDoorOptions options_;
  ThreadExecutor executor_;
  RequestIds request_ids_;
  const RpcParts parts_;
  AdminRpcService service_;
  GrpcListener listener_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminDoor>> AdminDoor::Start(const AdminDoorOptions& options, AdminApi* admin,
                                                            const Clock* clock, RpcObserver observer) {
  auto door = std::make_unique<RealAdminDoor>(options, admin, clock, std::move(observer));
  EPIC_RETURN_IF_ERROR(door->Listen());
  return door;
}

}  // namespace epic
