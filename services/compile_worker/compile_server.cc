#include "services/compile_worker/compile_server.h"

#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/executor.h"
#include "common/base/system_random.h"
#include "common/metrics/metrics.h"
#include "common/rpc/call_log.h"
#include "common/rpc/process_credentials.h"
#include "common/rpc/pull/transfer_settings.h"
#include "common/rpc/worker_parts.h"
#include "common/status/status_macros.h"
#include "services/compile_worker/config/compile_config.h"
#include "services/compile_worker/core/compile_service.h"
#include "services/compile_worker/core/job_check.h"
#include "services/compile_worker/rpc/compile_door.h"
#include "services/worker_api/opened_model.h"
#include "services/worker_api/worker_health.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 4;
constexpr size_t kQueue = 1024;

class CompileServer final : public PartServer {
 public:
  CompileServer(const Config& config, const Logger& log)
      : config_(config), log_(log), executor_(kThreads, kQueue) {}
  ~CompileServer() override { Stop(); }

  absl::Status Open() {
    EPIC_ASSIGN_OR_RETURN(credentials_, PartCredentialsOf(config_.tls, log_, &metrics_));
    EPIC_ASSIGN_OR_RETURN(transfers_,
                          NamedDoor("transport.ucx_devices",
                                    Transfers::Start(TransferOptionsOf(config_.transport), &metrics_)));
    EPIC_ASSIGN_OR_RETURN(
        store_, StoreOfWorker(config_.cluster, "epic-compile-worker", credentials_, transfers_.get()));
    EPIC_ASSIGN_OR_RETURN(OpenedModel model, OpenModel(config_.model));
    EPIC_ASSIGN_OR_RETURN(engine_, StartEngine(config_.engine, std::move(model.model), clock_, nullptr));
    CompileLimits limits = CompileLimitsOf(config_);
    limits.queues_layers = true;
    compiler_.emplace(limits, engine_.get(), store_.get(), &executor_, clock_, &metrics_);
    collector_ = CollectOfWorker(engine_.get(), credentials_.get(), &metrics_);
    EPIC_ASSIGN_OR_RETURN(admin_,
                          StartAdminDoor(
                              config_, [this] { return Health(); }, [this] { return metrics_.Text(); }));
    CompileDoorOptions options;
    options.address = config_.listen.grpc.ToString();
    options.credentials = credentials_;
    options.max_message_bytes = static_cast<size_t>(config_.limits.body_bytes);
    options.drain_ms = config_.deadlines.drain_ms;
    options.id_seed = SystemRandom();
    const auto check = [this, identity = model.identity](const CompileJob& job) {
      return CheckJob(job, *engine_, identity);
    };
    EPIC_ASSIGN_OR_RETURN(
        grpc_, NamedDoor("--grpc", CompileDoor::Start(options, &*compiler_, check, LogCalls(log_))));
    return absl::OkStatus();
  }

  std::vector<std::pair<std::string, std::string>> listening() const override {
    return {{"gRPC", HostPort{config_.listen.grpc.host, grpc_->port()}.ToString()},
            {"admin", "http://" + admin_->address()}};
  }
  void Drain() override {
    draining_ = true;
    grpc_->Drain();
  }
  // Running compiles end with their calls, or are cancelled with them.
  void Stop() override {
    draining_ = true;
    if (grpc_ != nullptr) grpc_->Stop();
    collector_ = Metrics::Collector();
    if (admin_ != nullptr) admin_->Stop();
    if (compiler_.has_value()) compiler_->Stop();
    if (engine_ != nullptr) engine_->Stop();
    executor_.Stop();
  }

 private:
  PartHealth Health() const {
    return HealthOfWorker(draining_, *engine_, credentials_.get(), config_.engine.stuck_after_ms, *clock_);
  }

  const Config config_;
  const Logger log_;
  const Clock* const clock_ = SystemClock::Get();
  std::atomic<bool> draining_{false};
  Metrics metrics_;
  std::shared_ptr<Credentials> credentials_;  // null: plain
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<Engine> engine_;
  ThreadExecutor executor_;
  std::optional<CompileService> compiler_;
  Metrics::Collector collector_;
  std::unique_ptr<HttpServer> admin_;
  std::unique_ptr<CompileDoor> grpc_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PartServer>> StartCompileServer(const Config& config, const Logger& log) {
  auto server = std::make_unique<CompileServer>(config, log);
  EPIC_RETURN_IF_ERROR(server->Open());
  return server;
}

}  // namespace epic
