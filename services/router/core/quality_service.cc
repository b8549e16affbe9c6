#include "services/router/core/quality_service.h"

#include "common/status/status_macros.h"
#include "services/router/core/chat_job.h"

namespace epic {

absl::StatusOr<ChatQuality> QualityService::Compare(const RequestScope& scope, const ChatRequest& request) {
  EPIC_ASSIGN_OR_RETURN(const ChatJob job, MakeChatJob(parts_, scope.tenant, request));
  EPIC_ASSIGN_OR_RETURN(const QualityReport report, probe_->Compare(job.link, scope.cancel));
  return ChatQuality{.linking = job.link.strategy.Name(),
                     .tokens = report.tokens,
                     .kl_mean = report.kl_mean,
                     .kl_median = report.kl_median,
                     .kl_first = report.kl_first,
                     .top1 = report.top1,
                     .prompt_tokens = report.prompt_tokens,
                     .cached_tokens = report.cached_tokens,
                     .recomputed_tokens = report.recomputed_tokens};
}

}  // namespace epic
