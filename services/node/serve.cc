#include "services/node/serve.h"

#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "common/base/stop_signals.h"
#include "common/base/system_random.h"
#include "common/base/version.h"
#include "common/http/http_server.h"
#include "common/log/log.h"
#include "common/metrics/metrics.h"
#include "common/process/process_parts.h"
#include "common/rpc/call_log.h"
#include "common/rpc/process_credentials.h"
#include "common/status/status_macros.h"
#include "kernels/api/dispatch.h"
#include "services/node/node.h"
#include "services/node/node_admin.h"
#include "services/router/http/router_site.h"
#include "services/router/rpc/admin_door.h"
#include "services/router/rpc/grpc_door.h"

namespace epic {
namespace {

class LoadProgress final : public PackProgress {
 public:
  explicit LoadProgress(std::ostream* out) : out_(out) {}
  void OnProgress(uint32_t layers_done, uint32_t layers_total) override {
    if (out_ == nullptr || (layers_done != layers_total && layers_done % kEvery != 0)) return;
    *out_ << "  packing weights: " << layers_done << " of " << layers_total << std::endl;
  }

 private:
  static constexpr uint32_t kEvery = 8;
  std::ostream* const out_;
};

HttpOptions HttpOptionsOf(const Config& config, HttpDoor door) {
  const HostPort& listen = door == HttpDoor::kPublic ? config.listen.http : config.listen.admin;
  HttpOptions options;
  options.door = door;
  options.host = listen.host;
  options.port = listen.port;
  options.max_connections = static_cast<uint32_t>(config.limits.connections);
  options.max_header_bytes = static_cast<size_t>(config.limits.header_bytes);
  options.max_body_bytes = static_cast<size_t>(config.limits.body_bytes);
  options.max_json_depth = static_cast<uint32_t>(config.limits.json_depth);
  options.stream_buffer_bytes = static_cast<size_t>(config.limits.stream_buffer_bytes);
  options.header_timeout_ms = config.limits.header_timeout_ms;
  options.body_timeout_ms = config.limits.body_timeout_ms;
  options.write_timeout_ms = config.limits.write_timeout_ms;
  options.idle_timeout_ms = config.limits.idle_timeout_ms;
  options.heartbeat_ms = config.limits.heartbeat_ms;
  options.request_deadline_ms = config.deadlines.request_ms;
  options.version = kVersion;
  options.build = kCommit;
  return options;
}

// Counts a request and writes its line. No text of users comes here.
HttpObserver Observe(const Logger& log, Metrics* metrics) {
  return [log, metrics](const HttpEvent& event) {
    metrics->GetCounter(MetricId::kRequestsTotal, {"http", event.code}).Add();
    // Clients are told of an unexpected error, but not what it was: that stands here.
    if (!event.cause.empty()) {
      log.Error("request failed unexpectedly",
                {{"call", event.call}, {"request_id", event.request_id}, {"cause", event.cause}});
    }
    log.Debug("request ends", {{"call", event.call},
                               {"status", event.status},
                               {"code", event.code},
                               {"request_id", event.request_id},
                               {"duration_us", event.duration_us},
                               {"bytes_in", event.bytes_in},
                               {"bytes_out", event.bytes_out}});
  };
}

// The log of calls of the public gRPC door, which are counted too.
RpcObserver ObserveCalls(const Logger& log, Metrics* metrics) {
  return [write = LogCalls(log), metrics](const RpcEvent& event) {
    metrics->GetCounter(MetricId::kRequestsTotal, {"grpc", event.code}).Add();
    write(event);
  };
}

// The doors of one node, opened together and closed in the right order.
class Doors {
 public:
  // `credentials`: of gRPC; null: plain.
  explicit Doors(std::shared_ptr<Credentials> credentials) : credentials_(std::move(credentials)) {}

  absl::Status Open(const Config& config, Node* node, const Logger& log, Metrics* metrics, uint64_t seed) {
    Clock* clock = SystemClock::Get();
    const Apis apis = node->apis();
    EPIC_ASSIGN_OR_RETURN(
        http_, NamedDoor("--http", StartHttpDoor(HttpOptionsOf(config, HttpDoor::kPublic), apis, clock, seed,
                                                 Observe(log, metrics))));
    EPIC_ASSIGN_OR_RETURN(admin_, NamedDoor("--admin", StartHttpDoor(HttpOptionsOf(config, HttpDoor::kAdmin),
                                                                     apis, clock, seed + 1)));
    GrpcDoorOptions grpc;
    grpc.address = config.listen.grpc.ToString();
    grpc.credentials = credentials_;
    grpc.max_message_bytes = static_cast<size_t>(config.limits.body_bytes);
    grpc.max_stream_buffer_bytes = static_cast<size_t>(config.limits.stream_buffer_bytes);
    grpc.drain_ms = config.deadlines.drain_ms;
    grpc.id_seed = seed + 2;
    EPIC_ASSIGN_OR_RETURN(
        grpc_, NamedDoor("--grpc", GrpcDoor::Start(grpc, apis, clock, ObserveCalls(log, metrics))));
    EPIC_RETURN_IF_ERROR(OpenAdminGrpc(config, node, log, seed + 3));
    collector_ = metrics->AddCollector([this, metrics] {
      metrics->GetGauge(MetricId::kHttpConnections, {"public"})
          .Set(static_cast<double>(http_->connections()));
      metrics->GetGauge(MetricId::kHttpConnections, {"admin"})
          .Set(static_cast<double>(admin_->connections()));
      metrics->GetGauge(MetricId::kHttpStreams).Set(static_cast<double>(http_->streams()));
      ShowCredentials(credentials_.get(), metrics);
    });
    return absl::OkStatus();
  }

  ServeAddresses Addresses(const Config& config) const {
    const HostPort grpc{config.listen.grpc.host, grpc_->port()};
    const HostPort admin_grpc{config.listen.admin_grpc.host, admin_grpc_->port()};
    return {http_->address(), grpc.ToString(), admin_->address(), admin_grpc.ToString(), {}};
  }

  // Lets running requests end; what is left after `timeout_ms` is cut.
  void Drain(int64_t timeout_ms) {
    grpc_->Drain();
    http_->Drain(timeout_ms);
  }

  void Close() {
    collector_ = Metrics::Collector();
    if (admin_grpc_ != nullptr) admin_grpc_->Stop();  // first: its calls use the other doors
    if (http_ != nullptr) http_->Stop();
    if (grpc_ != nullptr) grpc_->Stop();
    if (admin_ != nullptr) admin_->Stop();
  }

 private:
  absl::Status OpenAdminGrpc(const Config& config, Node* node, const Logger& log, uint64_t seed) {
    node_admin_ = std::make_unique<NodeAdmin>(config, log, [this, node] {
      const uint64_t running = node->RefuseNew();
      grpc_->Drain();
      return running;
    });
    AdminDoorOptions options;
    options.address = config.listen.admin_grpc.ToString();
    options.credentials = credentials_;
    options.id_seed = seed;
    EPIC_ASSIGN_OR_RETURN(admin_grpc_,
                          NamedDoor("--admin-grpc", AdminDoor::Start(options, node_admin_.get(),
                                                                     SystemClock::Get(), LogCalls(log))));
    return absl::OkStatus();
  }

  const std::shared_ptr<Credentials> credentials_;
  std::unique_ptr<HttpServer> http_, admin_;
  std::unique_ptr<GrpcDoor> grpc_;
  std::unique_ptr<NodeAdmin> node_admin_;
  std::unique_ptr<AdminDoor> admin_grpc_;
  Metrics::Collector collector_;
};

}  // namespace

std::string CpuInUse() { return DescribeCpu(); }

absl::Status Serve(const Config& config, const ServeHooks& hooks) {
  const StopSignals signals;
  const Logger log(LogOptionsOf(config));
  const uint64_t seed = SystemRandom();
  const Clock* clock = SystemClock::Get();
  Metrics metrics;
  EPIC_ASSIGN_OR_RETURN(const std::shared_ptr<Credentials> credentials,
                        CredentialsOf(config.tls, log, &metrics));
  NodeOptions options;
  options.config = config;
  options.build_version = std::string(kVersion);
  options.seed = seed;
  options.other_causes = [credentials] { return CredentialsCauses(credentials.get()); };
  Node node(std::move(options), clock, &metrics,
            [&config, clock](PackProgress* progress) { return LoadParts(config, clock, progress); });
  Doors doors(credentials);
  absl::Status status = doors.Open(config, &node, log, &metrics, seed);
  LoadProgress progress(hooks.progress);
  if (status.ok()) status = node.Start(&progress);
  if (!status.ok()) {
    doors.Close();
    node.Stop();
    return status;
  }
  ServeAddresses addresses = doors.Addresses(config);
  addresses.model = node.apis().models->List().front().id;
  log.Info("serving", {{"model", addresses.model},
                       {"http", addresses.http},
                       {"grpc", addresses.grpc},
                       {"admin", addresses.admin},
                       {"admin_grpc", addresses.admin_grpc},
                       {"cpu", CpuInUse()}});
  if (hooks.ready) hooks.ready(addresses);
  signals.Wait();
  log.Info("stopping; running requests may end", {{"drain_ms", config.deadlines.drain_ms}});
  node.Drain(config.deadlines.drain_ms);
  doors.Drain(config.deadlines.drain_ms);
  doors.Close();
  node.Stop();
  log.Info("stopped");
  return absl::OkStatus();
}

}  // namespace epic
