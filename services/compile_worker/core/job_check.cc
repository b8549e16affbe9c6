#include "services/compile_worker/core/job_check.h"

#include "common/status/error.h"
#include "services/worker_api/served_model.h"

namespace epic {

absl::Status CheckJob(const CompileJob& job, const Engine& engine, const Digest& model_identity) {
  const auto refuse = [](std::string_view what, std::string_view field) {
    return Error(ErrorCode::kInvalidRequest, what, field);
  };
  if (job.tokens.empty()) return refuse("a context has tokens", "tokens");
  if (CacheId::Of(job.tenant, model_identity, job.tokens) != job.key.id) {
    return refuse("these are not the tokens of that context under the model of this worker", "tokens");
  }
  const CompilePrefixKind kind = job.key.variant.prefix;
  if ((kind == CompilePrefixKind::kNone) != job.prefix_tokens.empty() ||
      VariantOf(engine, kind, job.prefix_tokens) != job.key.variant) {
    return refuse("this worker makes no such variant of these prefix tokens", "key");
  }
  return absl::OkStatus();
}

}  // namespace epic
