#include "services/node/node.h"

#include <optional>
#include <utility>
#include <vector>

#include "common/base/executor.h"
#include "common/base/timers.h"
#include "common/status/error.h"
#include "common/status/status_macros.h"
#include "common/storage/disk_causes.h"
#include "common/storage/store_gauges.h"
#include "services/compile_worker/config/compile_config.h"
#include "services/compile_worker/core/compile_service.h"
#include "services/link_worker/core/link_service.h"
#include "services/link_worker/core/quality.h"
#include "services/node/api_gate.h"
#include "services/router/core/chat_service.h"
#include "services/router/core/context_service.h"
#include "services/router/core/model_service.h"
#include "services/router/core/quality_service.h"
#include "services/router/core/request_registry.h"
#include "services/worker_api/opened_model.h"

namespace epic {
namespace {

constexpr size_t kExecutorQueue = 1024;
constexpr int64_t kTickMs = 25;  // how soon a client that is gone is noticed
constexpr char kTenant[] = "default";

RouterLimits LimitsOf(const Config& config) {
  RouterLimits limits;
  limits.messages = config.limits.messages;
  limits.content_parts = config.limits.content_parts;
  limits.n = config.limits.n;
  limits.stop_count = config.limits.stop_count;
  limits.stop_bytes = config.limits.stop_bytes;
  limits.default_max_tokens = config.limits.default_max_tokens;
  limits.tags = config.limits.tags;
  limits.tag_bytes = config.limits.tag_bytes;
  limits.name_bytes = config.limits.name_bytes;
  limits.default_wait_seconds = static_cast<double>(config.deadlines.context_wait_ms) / 1000;
  return limits;
}

}  // namespace

// Members are in the order of construction; they go in the opposite one. `gate` and `registry` are there from
// the start, the rest is made by Start on one thread and published to the doors by the gate.
struct Node::State final : public NodeApi {
  State(NodeOptions given, const Clock* c, Metrics* m, PartsLoader l)
      : options(std::move(given)),
        clock(c),
        metrics(m),
        loader(std::move(l)),
        registry(options.max_requests, c) {}

  HealthReport Health() const override;
  std::vector<InFlightRequest> InFlight() const override { return registry.List(); }
  std::string MetricsText() const override { return metrics->Text(); }

  RouterParts MakeRouterParts();
  void CollectGauges();

  const NodeOptions options;
  const Clock* const clock;
  Metrics* const metrics;
  const PartsLoader loader;
  ApiGate gate;
  RequestRegistry registry;
  NodeParts parts;
  ServedModel model;
  std::optional<ThreadExecutor> executor;
  std::optional<TimerThread> timers;
  std::optional<CompileService> compiles;
  std::optional<LinkService> links;
  std::optional<ContextService> contexts;
  std::optional<ChatService> chat;
  std::optional<ModelService> models;
  std::optional<EngineQualityProbe> probe;
  std::optional<QualityService> quality;
  Metrics::Collector collector;
  bool stopped = false;  // Start's and Stop's thread only
};

HealthReport Node::State::Health() const {
  switch (gate.state()) {
    case NodeState::kLoading:
      return {.able = false, .status = "loading", .causes = {"the model is being loaded"}};
    case NodeState::kDraining:
      return {.able = false, .status = "draining", .causes = {"the server is stopping"}};
    case NodeState::kServing:
      break;
  }
  const auto stuck =
      StuckCause(parts.engine->Gauges(), clock->SteadyNs(), options.config.engine.stuck_after_ms);
  if (stuck.has_value()) return {.able = false, .status = "stuck", .causes = {*stuck}};
  std::vector<std::string> causes = DiskCauses(parts.store->Disk(), clock->SteadyNs());
  if (options.other_causes) {
    for (std::string& cause : options.other_causes()) causes.push_back(std::move(cause));
  }
  return {.able = true, .status = causes.empty() ? "ok" : "degraded", .causes = std::move(causes)};
}

RouterParts Node::State::MakeRouterParts() {
  RouterParts router;
  router.model = &model;
  router.store = parts.store.get();
  router.compiler = &*compiles;
  router.linker = &*links;
  router.executor = &*executor;
  router.timers = &*timers;
  router.clock = clock;
  router.registry = &registry;
  router.metrics = metrics;
  router.limits = LimitsOf(options.config);
  router.default_strategy = options.config.linking.strategy;
  router.default_compile_prefix = options.config.linking.compile_prefix;
  router.build_version = options.build_version;
  return router;
}

void Node::State::CollectGauges() {
  ShowEngine(parts.engine->Gauges(), metrics);
  ShowStore(parts.store->Usage(), parts.store->Disk(), metrics);
}

Node::Node(NodeOptions options, const Clock* clock, Metrics* metrics, PartsLoader loader)
    : state_(std::make_unique<State>(std::move(options), clock, metrics, std::move(loader))) {}

Node::~Node() { Stop(); }

Apis Node::apis() {
  return {.contexts = &state_->gate,
          .chat = &state_->gate,
          .models = &state_->gate,
          .node = state_.get(),
          .quality = &state_->gate};
}

absl::Status Node::Start(PackProgress* progress) {
  State& s = *state_;
  EPIC_ASSIGN_OR_RETURN(s.parts, s.loader(progress));
  s.model = {.alias = s.parts.alias,
             .created_unix = s.clock->UnixMs() / 1000,
             .identity = s.parts.identity,
             .architecture = s.parts.architecture,
             .parameters = s.parts.parameters,
             .tokenizer = s.parts.tokenizer.get(),
             .chat_template = s.parts.chat_template.get(),
             .engine = s.parts.engine.get()};
  s.executor.emplace(s.options.executor_threads, kExecutorQueue);
  s.timers.emplace(s.clock);
  s.compiles.emplace(CompileLimitsOf(s.options.config), s.parts.engine.get(), s.parts.store.get(),
                     &*s.executor, s.clock, s.metrics);
  s.links.emplace(HeadLimits(), &s.model, s.parts.store.get(), &*s.compiles, &*s.executor, s.clock,
                  s.metrics);
  const RouterParts router = s.MakeRouterParts();
  s.contexts.emplace(router);
  s.chat.emplace(router, s.options.seed);
  s.models.emplace(router);
  s.probe.emplace(&s.model, &*s.compiles, s.parts.store.get(), s.metrics);
  s.quality.emplace(router, &*s.probe);
  s.registry.Start(&*s.timers, kTickMs);
  s.collector = s.metrics->AddCollector([&s] { s.CollectGauges(); });
  s.gate.Open(&*s.contexts, &*s.chat, &*s.models, &*s.quality);
  s.contexts->Redrive(kTenant);
  return absl::OkStatus();
}

uint64_t Node::RefuseNew() {
  state_->gate.Drain();
  return state_->registry.size();
}

bool Node::Drain(int64_t timeout_ms) {
  state_->gate.Drain();
  if (state_->registry.WaitIdle(timeout_ms)) return true;
  state_->registry.InterruptAll(Error(ErrorCode::kDraining, "the server is stopping"));
  return false;
}

void Node::Stop() {
  State& s = *state_;
  s.gate.Drain();
  if (std::exchange(s.stopped, true) || !s.executor.has_value()) return;
  s.registry.InterruptAll(Error(ErrorCode::kDraining, "the server is stopping"));
  s.collector = Metrics::Collector();
  s.compiles->Stop();
  s.parts.engine->Stop();
  s.timers->Stop();
  s.executor->Stop();
}

}  // namespace epic
