// Whether a request can be served at all: everything that a submission refuses at once, before it is queued.
//
// Pure, any thread. Bounds that depend on what else runs (the queue, memory) are the engine's, not here;
// whether an object holds the KV of its tokens is the caller's promise, only its shape is looked at.
#ifndef EPIC_SERVICES_ENGINE_VALIDATE_H_
#define EPIC_SERVICES_ENGINE_VALIDATE_H_

#include "absl/status/status.h"
#include "services/engine/engine.h"
#include "services/engine/kv_block.h"

namespace epic {

struct RequestLimits {
  const ModelConfig* config = nullptr;
  KvShape shape;
  uint32_t max_sequences = 0;
};

// Errors: kInvalidRequest with the parameter at fault, kContextLengthExceeded with both numbers.
absl::Status ValidateLink(const RequestLimits& limits, const LinkRequest& request);
absl::Status ValidateCompile(const RequestLimits& limits, const CompileRequest& request);
absl::Status ValidateScore(const RequestLimits& limits, const ScoreRequest& request);

}  // namespace epic

#endif  // EPIC_SERVICES_ENGINE_VALIDATE_H_
