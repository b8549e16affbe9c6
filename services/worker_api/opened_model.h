// The model that a process serves, opened as its settings say: what a node and the workers have in common.
//
// A plain value and free functions; no state. The engine is started last: a bad file is told before the
// weights are packed.
#ifndef EPIC_SERVICES_WORKER_API_OPENED_MODEL_H_
#define EPIC_SERVICES_WORKER_API_OPENED_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/config/config.h"
#include "common/metrics/metrics.h"
#include "services/engine/engine.h"
#include "services/model/chat_template.h"
#include "services/model/model.h"
#include "services/model/tokenizer.h"

namespace epic {

struct OpenedModel {
  std::shared_ptr<const Model> model;
  std::string alias;
  Digest identity;
  std::string architecture;
  uint64_t parameters = 0;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;
};

// Errors: NotFound when there is no such file; what is wrong with it, with its path.
absl::StatusOr<OpenedModel> OpenModel(const ModelSettings& settings);

// Packs the weights and starts the loop. `progress` may be null. Errors: those of Engine::Create.
absl::StatusOr<std::unique_ptr<Engine>> StartEngine(const EngineSettings& settings,
                                                    std::shared_ptr<const Model> model, const Clock* clock,
                                                    PackProgress* progress);

// For a collector of gauges.
void ShowEngine(const EngineGauges& gauges, Metrics* metrics);
// What health says when the engine has work and stood still for longer than `stuck_after_ms`; else nothing.
std::optional<std::string> StuckCause(const EngineGauges& gauges, int64_t now_steady_ns,
                                      int64_t stuck_after_ms);

}  // namespace epic

#endif  // EPIC_SERVICES_WORKER_API_OPENED_MODEL_H_
