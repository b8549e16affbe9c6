// What the process of a worker says of itself: health, and gauges at each scrape. Free functions.
#ifndef EPIC_SERVICES_WORKER_API_WORKER_HEALTH_H_
#define EPIC_SERVICES_WORKER_API_WORKER_HEALTH_H_

#include <cstdint>

#include "common/base/clock.h"
#include "common/http/admin_site.h"
#include "common/metrics/metrics.h"
#include "common/rpc/credentials.h"
#include "services/engine/engine.h"

namespace epic {

// `credentials` may be null.
PartHealth HealthOfWorker(bool draining, const Engine& engine, const Credentials* credentials,
                          int64_t stuck_after_ms, const Clock& clock);

// All outlive what is returned; `credentials` may be null.
Metrics::Collector CollectOfWorker(const Engine* engine, const Credentials* credentials, Metrics* metrics);

}  // namespace epic

#endif  // EPIC_SERVICES_WORKER_API_WORKER_HEALTH_H_
