// A model ready to measure: weights, tokenizer, template and engine, in this process. No server, no store.
//
// Owns the engine and stops it at the end of its life. The parts are thread-safe as their headers say.
#ifndef EPIC_LOADGEN_QUALITY_WORKBENCH_H_
#define EPIC_LOADGEN_QUALITY_WORKBENCH_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "services/engine/engine.h"
#include "services/model/chat_template.h"
#include "services/model/model.h"
#include "services/model/tokenizer.h"

namespace epic::loadgen {

struct WorkbenchOptions {
  std::string model_path;
  uint32_t threads = 0;                  // 0: one per core
  std::optional<ComputeFormat> compute;  // unset: bf16 where the CPU has it, else f32
};

struct Workbench {
  std::shared_ptr<const Model> model;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<const ChatTemplate> chat_template;
  std::unique_ptr<Engine> engine;
  const Clock* clock = nullptr;
  std::vector<TokenId> end_tokens;  // that end a generation
  EngineOptions options;            // of the engine

  Workbench() = default;
  ~Workbench();
  // `progress` may be null. Errors: those of Model::Load, Tokenizer, ChatTemplate and Engine.
  static absl::StatusOr<std::unique_ptr<Workbench>> Open(const WorkbenchOptions& options, const Clock* clock,
                                                         std::ostream* progress);
};

}  // namespace epic::loadgen

#endif  // EPIC_LOADGEN_QUALITY_WORKBENCH_H_
