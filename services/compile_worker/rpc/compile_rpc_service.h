// CompileWorkerService: checks a request, asks the core, answers. A thin handler over Compiler. Thread-safe.
#ifndef EPIC_SERVICES_COMPILE_WORKER_RPC_COMPILE_RPC_SERVICE_H_
#define EPIC_SERVICES_COMPILE_WORKER_RPC_COMPILE_RPC_SERVICE_H_

#include <functional>
#include <utility>

#include "common/rpc/rpc_call.h"
#include "epic/v1/compile.grpc.pb.h"
#include "services/worker_api/compiler.h"

namespace epic {

class CompileRpcService final : public v1::CompileWorkerService::CallbackService {
 public:
  // `check` says whether a job is sound. The pointers outlive the service.
  CompileRpcService(Compiler* compiler, std::function<absl::Status(const CompileJob&)> check,
                    const RpcParts* parts)
      : compiler_(compiler), check_(std::move(check)), parts_(parts) {}

  grpc::ServerUnaryReactor* Compile(grpc::CallbackServerContext* context,
                                    const v1::CompileContextRequest* request,
                                    v1::CompileContextResponse* response) override;
  grpc::ServerUnaryReactor* Forget(grpc::CallbackServerContext* context,
                                   const v1::ForgetContextRequest* request,
                                   v1::ForgetContextResponse* response) override;

 private:
  // Errors: kInvalidRequest with the field's name.
  absl::StatusOr<CompileJob> JobOf(const v1::CompileContextRequest& request) const;

  Compiler* const compiler_;
  const std::function<absl::Status(const CompileJob&)> check_;
  const RpcParts* const parts_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_COMPILE_WORKER_RPC_COMPILE_RPC_SERVICE_H_
