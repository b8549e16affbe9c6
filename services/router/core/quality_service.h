// QualityApi: checks a chat as ChatApi does and has its linked prompt compared with the one computed whole.
// No state; thread-safe; blocks for the seconds that it takes.
#ifndef EPIC_SERVICES_ROUTER_CORE_QUALITY_SERVICE_H_
#define EPIC_SERVICES_ROUTER_CORE_QUALITY_SERVICE_H_

#include "services/router/core/api.h"
#include "services/router/core/router_parts.h"
#include "services/worker_api/quality_probe.h"

namespace epic {

class QualityService final : public QualityApi {
 public:
  // The probe outlives the service.
  QualityService(const RouterParts& parts, QualityProbe* probe) : parts_(parts), probe_(probe) {}
  absl::StatusOr<ChatQuality> Compare(const RequestScope& scope, const ChatRequest& request) override;

 private:
  const RouterParts parts_;
  QualityProbe* const probe_;
};

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_CORE_QUALITY_SERVICE_H_
