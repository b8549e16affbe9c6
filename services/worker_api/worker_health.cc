#include "services/worker_api/worker_health.h"

#include <string>
#include <utility>
#include <vector>

#include "common/rpc/process_credentials.h"
#include "services/worker_api/opened_model.h"

namespace epic {

PartHealth HealthOfWorker(bool draining, const Engine& engine, const Credentials* credentials,
                          int64_t stuck_after_ms, const Clock& clock) {
  if (draining) return {.able = false, .status = "draining", .causes = {"the worker is stopping"}};
  const auto stuck = StuckCause(engine.Gauges(), clock.SteadyNs(), stuck_after_ms);
  if (stuck.has_value()) return {.able = false, .status = "stuck", .causes = {*stuck}};
  std::vector<std::string> causes = CredentialsCauses(credentials);
  return {.able = true, .status = causes.empty() ? "ok" : "degraded", .causes = std::move(causes)};
}

Metrics::Collector CollectOfWorker(const Engine* engine, const Credentials* credentials, Metrics* metrics) {
  return metrics->AddCollector([engine, credentials, metrics] {
    ShowEngine(engine->Gauges(), metrics);
    ShowCredentials(credentials, metrics);
  });
}

}  // namespace epic
