// What the settings (common/config) say of compiles, in their own limits. A free function.
#ifndef EPIC_SERVICES_COMPILE_WORKER_CONFIG_COMPILE_CONFIG_H_
#define EPIC_SERVICES_COMPILE_WORKER_CONFIG_COMPILE_CONFIG_H_

#include "common/config/config.h"
#include "services/compile_worker/core/compile_service.h"

namespace epic {

CompileLimits CompileLimitsOf(const Config& config);

}  // namespace epic

#endif  // EPIC_SERVICES_COMPILE_WORKER_CONFIG_COMPILE_CONFIG_H_
