#include "services/compile_worker/config/compile_config.h"

namespace epic {

CompileLimits CompileLimitsOf(const Config& config) {
  CompileLimits limits;
  limits.max_running = static_cast<uint32_t>(config.compile.max_running);
  limits.max_queue = static_cast<uint32_t>(config.compile.max_queue);
  // One step of the engine that runs, and the next one that waits behind it.
  limits.max_batch_rows = static_cast<uint32_t>(2 * config.engine.panel_tokens);
  return limits;
}

}  // namespace epic
