#include "services/kv_store/store_server.h"

#include <atomic>
#include <utility>

#include "common/base/system_random.h"
#include "common/metrics/metrics.h"
#include "common/rpc/call_log.h"
#include "common/rpc/process_credentials.h"
#include "common/rpc/pull/transfer_settings.h"
#include "common/status/status_macros.h"
#include "common/storage/disk_causes.h"
#include "common/storage/shm/boot_id.h"
#include "common/storage/shm/server.h"
#include "common/transport/ucx/ucx_node.h"
#include "services/kv_store/config/store_config.h"
#include "services/kv_store/core/node/store_node.h"
#include "services/kv_store/core/store_leases.h"
#include "services/kv_store/embedded_store.h"
#include "services/kv_store/metrics/store_metrics.h"
#include "services/kv_store/rpc/store_door.h"
#include "services/kv_store/serving/node_source.h"

namespace epic::kv_store {
namespace {

class StoreServer final : public PartServer {
 public:
  StoreServer(const Config& config, Clock* clock, const Logger& log)
      : config_(config), clock_(clock), log_(log), store_metrics_(&metrics_) {}
  ~StoreServer() override { Stop(); }

  absl::Status Open() {
    EPIC_ASSIGN_OR_RETURN(credentials_, PartCredentialsOf(config_.tls, log_, &metrics_));
    EPIC_ASSIGN_OR_RETURN(store_, EmbeddedStore::OpenCore(StoreOptionsOf(config_.store, clock_)));
    StoreNodeOptions node;
    node.clock = clock_;
    EPIC_ASSIGN_OR_RETURN(node_, StoreNode::Open(store_.get(), node));
    leases_ = std::make_unique<StoreLeases>(store_.get());
    EPIC_RETURN_IF_ERROR(OpenHandOver());
    EPIC_RETURN_IF_ERROR(OpenUcx());
    EPIC_RETURN_IF_ERROR(OpenGrpc());
    collector_ = metrics_.AddCollector([this] {
      store_metrics_.Show(Gauges());
      ShowCredentials(credentials_.get(), &metrics_);
    });
    return OpenAdmin();
  }

  std::vector<std::pair<std::string, std::string>> listening() const override {
    std::vector<std::pair<std::string, std::string>> doors = {
        {"gRPC", HostPort{config_.listen.grpc.host, grpc_->port()}.ToString()},
        {"admin", "http://" + admin_->address()}};
    if (shm_ != nullptr) doors.emplace_back("shm", ShmSocketOf(config_.store));
    return doors;
  }
  void Drain() override {
    draining_ = true;
    grpc_->Drain();
  }
  void Stop() override {
    collector_ = Metrics::Collector();
    if (shm_ != nullptr) shm_->Stop();
    if (grpc_ != nullptr) grpc_->Stop();
    if (ucx_ != nullptr) ucx_->Stop();
    if (admin_ != nullptr) admin_->Stop();
    if (store_ != nullptr) store_->Stop();
  }

 private:
  absl::Status OpenHandOver() {
    if (!Names(config_.transport, transport::PathKind::kShm)) return absl::OkStatus();
    shm::ServerOptions options;
    options.path = ShmSocketOf(config_.store);
    options.arena_fd = store_->arena().read_only_fd();
    options.arena_bytes = store_->arena().capacity_bytes();
    options.incarnation = node_->incarnation();
    EPIC_ASSIGN_OR_RETURN(shm_, NamedDoor("store.shm_socket", shm::Server::Start(options, leases_.get())));
    return absl::OkStatus();
  }

  // Readers get tickets for it from the gRPC door, which knows who asks.
  absl::Status OpenUcx() {
    if (!Names(config_.transport, transport::PathKind::kUcx)) return absl::OkStatus();
    source_ = std::make_unique<NodeSource>(node_.get());
    transport::UcxNodeOptions options;
    options.settings = UcxSettingsOf(config_.transport);
    options.source = source_.get();
    options.arenas = {store_->arena().memory()};
    options.server.on_sent = [this](uint64_t bytes) {
      store_metrics_.OnSent(transport::PathKind::kUcx, bytes);
    };
    EPIC_ASSIGN_OR_RETURN(ucx_, NamedDoor("transport.ucx_devices", transport::UcxNode::Start(options)));
    return absl::OkStatus();
  }
  OtherWays WaysBesideGrpc() {
    OtherWays ways;
    if (shm_ != nullptr) {
      ways.boot_id = shm::BootId();
      ways.hand_over_socket = ShmSocketOf(config_.store);
    }
    if (ucx_ != nullptr) ways.issue_lane_ticket = [this] { return ucx_->IssueTicket(); };
    return ways;
  }

  absl::Status OpenGrpc() {
    StoreDoorOptions options;
    options.address = config_.listen.grpc.ToString();
    options.credentials = credentials_;
    options.max_message_bytes = static_cast<size_t>(config_.limits.body_bytes);
    options.worker_threads = static_cast<uint32_t>(config_.store.workers);
    options.streams_max = static_cast<uint32_t>(config_.store.streams);
    options.stall_ms = config_.limits.write_timeout_ms;
    options.drain_ms = config_.deadlines.drain_ms;
    options.id_seed = SystemRandom();
    options.other_ways = WaysBesideGrpc();
    StoreDoorObservers observers;
    observers.on_call = [this, write = LogCalls(log_)](const RpcEvent& event) {
      store_metrics_.OnCall(event);
      write(event);
    };
    observers.on_lookup = [this](bool hit, MissCause cause) { store_metrics_.OnLookup(hit, cause); };
    observers.on_layer_bytes = [this](uint64_t bytes) {
      store_metrics_.OnSent(transport::PathKind::kGrpc, bytes);
    };
    EPIC_ASSIGN_OR_RETURN(grpc_,
                          NamedDoor("--grpc", StoreDoor::Start(options, node_.get(), std::move(observers))));
    return absl::OkStatus();
  }

  absl::Status OpenAdmin() {
    EPIC_ASSIGN_OR_RETURN(admin_,
                          StartAdminDoor(
                              config_, [this] { return Health(); }, [this] { return metrics_.Text(); }));
    return absl::OkStatus();
  }

  PartHealth Health() const {
    if (draining_) return {.able = false, .status = "draining", .causes = {"the node is stopping"}};
    std::vector<std::string> causes = DiskCauses(store_->Disk(), clock_->SteadyNs());
    for (std::string& cause : CredentialsCauses(credentials_.get())) causes.push_back(std::move(cause));
    return {.able = true, .status = causes.empty() ? "ok" : "degraded", .causes = std::move(causes)};
  }

  StoreGauges Gauges() const {
    return {.usage = store_->Usage(),
            .disk = store_->Disk(),
            .scrubbed = store_->Scrubbed(),
            .reservations = node_->reservation_counts(),
            .leases = node_->lease_counts(),
            .events = node_->event_counts(),
            .warmed_up = store_->WarmedUp(),
            .shm = shm_ == nullptr ? shm::Server::Numbers() : shm_->numbers(),
            .streams = grpc_->streams(),
            .attached = grpc_->attached()};
  }

  const Config config_;
  Clock* const clock_;
  const Logger log_;
  std::atomic<bool> draining_{false};
  Metrics metrics_;
  const StoreMetrics store_metrics_;
  std::shared_ptr<Credentials> credentials_;  // null: plain
  std::unique_ptr<StoreCore> store_;
  std::unique_ptr<StoreNode> node_;
  std::unique_ptr<StoreLeases> leases_;
  std::unique_ptr<shm::Server> shm_;
  std::unique_ptr<NodeSource> source_;       // of ucx_
  std::unique_ptr<transport::UcxNode> ucx_;  // nullptr: transport.paths does not name it
  std::unique_ptr<StoreDoor> grpc_;
  std::unique_ptr<HttpServer> admin_;
  Metrics::Collector collector_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PartServer>> StartStoreServer(const Config& config, const Logger& log) {
  auto server = std::make_unique<StoreServer>(config, SystemClock::Get(), log);
  EPIC_RETURN_IF_ERROR(server->Open());
  return server;
}

}  // namespace epic::kv_store
