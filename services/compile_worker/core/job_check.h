// Whether a job of another process is what it says: a wrong one would leave wrong keys and values under the
// name of a context. Pure.
#ifndef EPIC_SERVICES_COMPILE_WORKER_CORE_JOB_CHECK_H_
#define EPIC_SERVICES_COMPILE_WORKER_CORE_JOB_CHECK_H_

#include "absl/status/status.h"
#include "common/base/digest.h"
#include "services/engine/engine.h"
#include "services/worker_api/compiler.h"

namespace epic {

// Errors: kInvalidRequest with the field, when the tokens are none or not those of the id, or the variant is
// none that this engine makes of the prefix tokens.
absl::Status CheckJob(const CompileJob& job, const Engine& engine, const Digest& model_identity);

}  // namespace epic

#endif  // EPIC_SERVICES_COMPILE_WORKER_CORE_JOB_CHECK_H_
