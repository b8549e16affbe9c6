#include "services/link_worker/link_server.h"

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
#include "services/link_worker/core/link_service.h"
#include "services/link_worker/rpc/compile_client.h"
#include "services/link_worker/rpc/link_door.h"
#include "services/worker_api/opened_model.h"
#include "services/worker_api/worker_health.h"

namespace epic {
namespace {

constexpr uint32_t kThreads = 4;
constexpr size_t kQueue = 1024;

class LinkServer final : public PartServer {
 public:
  LinkServer(const Config& config, const Logger& log)
      : config_(config), log_(log), executor_(kThreads, kQueue) {}
  ~LinkServer() override { Stop(); }

  absl::Status Open() {
    EPIC_ASSIGN_OR_RETURN(credentials_, PartCredentialsOf(config_.tls, log_, &metrics_));
    EPIC_ASSIGN_OR_RETURN(transfers_,
                          NamedDoor("transport.ucx_devices",
                                    Transfers::Start(TransferOptionsOf(config_.transport), &metrics_)));
    EPIC_ASSIGN_OR_RETURN(store_,
                          StoreOfWorker(config_.cluster, "epic-link-worker", credentials_, transfers_.get()));
    EPIC_RETURN_IF_ERROR(OpenModelAndEngine());
    CompileClientOptions compile;
    EPIC_ASSIGN_OR_RETURN(compile.workers, ParseAddresses(config_.cluster.compile_workers));
    compile.credentials = credentials_;
    compile.call_ms = config_.deadlines.request_ms;
    compiler_ = CompileClient::Make(compile, store_.get(), &executor_);
    linker_.emplace(HeadLimits(), &served_, store_.get(), compiler_.get(), &executor_, clock_, &metrics_);
    collector_ = CollectOfWorker(engine_.get(), credentials_.get(), &metrics_);
    EPIC_ASSIGN_OR_RETURN(admin_,
                          StartAdminDoor(
                              config_, [this] { return Health(); }, [this] { return metrics_.Text(); }));
    return OpenGrpc();
  }

  std::vector<std::pair<std::string, std::string>> listening() const override {
    return {{"gRPC", HostPort{config_.listen.grpc.host, grpc_->port()}.ToString()},
            {"admin", "http://" + admin_->address()}};
  }
  void Drain() override {
    draining_ = true;
    grpc_->Drain();
  }
  // Running prompts end, or are cancelled with their calls.
  void Stop() override {
    draining_ = true;
    if (grpc_ != nullptr) grpc_->Stop();
    collector_ = Metrics::Collector();
    if (admin_ != nullptr) admin_->Stop();
    if (compiler_ != nullptr) compiler_->Stop();
    if (engine_ != nullptr) engine_->Stop();
    executor_.Stop();
  }

 private:
  absl::Status OpenModelAndEngine() {
    EPIC_ASSIGN_OR_RETURN(model_, OpenModel(config_.model));
    EPIC_ASSIGN_OR_RETURN(engine_, StartEngine(config_.engine, std::move(model_.model), clock_, nullptr));
    served_ = {.alias = model_.alias,
               .created_unix = clock_->UnixMs() / 1000,
               .identity = model_.identity,
               .architecture = model_.architecture,
               .parameters = model_.parameters,
               .tokenizer = model_.tokenizer.get(),
               .chat_template = model_.chat_template.get(),
               .engine = engine_.get()};
    return absl::OkStatus();
  }

  absl::Status OpenGrpc() {
    LinkDoorOptions options;
    options.address = config_.listen.grpc.ToString();
    options.credentials = credentials_;
    options.max_message_bytes = static_cast<size_t>(config_.limits.body_bytes);
    options.max_stream_buffer_bytes = static_cast<size_t>(config_.limits.stream_buffer_bytes);
    options.drain_ms = config_.deadlines.drain_ms;
    options.id_seed = SystemRandom();
    EPIC_ASSIGN_OR_RETURN(
        grpc_, NamedDoor("--grpc", LinkDoor::Start(options, &*linker_, model_.identity, LogCalls(log_))));
    return absl::OkStatus();
  }

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
  OpenedModel model_;
  std::unique_ptr<Engine> engine_;
  ServedModel served_;
  ThreadExecutor executor_;
  std::unique_ptr<CompileClient> compiler_;
  std::optional<LinkService> linker_;
  Metrics::Collector collector_;
  std::unique_ptr<HttpServer> admin_;
  std::unique_ptr<LinkDoor> grpc_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PartServer>> StartLinkServer(const Config& config, const Logger& log) {
  auto server = std::make_unique<LinkServer>(config, log);
  EPIC_RETURN_IF_ERROR(server->Open());
  return server;
}

}  // namespace epic
