// The public and the admin door of the router over HTTP: routes.h and handlers.h as a site of common/http.
#ifndef EPIC_SERVICES_ROUTER_HTTP_ROUTER_SITE_H_
#define EPIC_SERVICES_ROUTER_HTTP_ROUTER_SITE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/http/http_event.h"
#include "common/http/http_options.h"
#include "common/http/http_server.h"
#include "services/router/core/api.h"

namespace epic {

// Serves options.door; listens when it returns. The Apis and the clock outlive the server.
// REQUIRES: the Apis that the door's routes need are set. Errors: those of HttpServer::Start.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpDoor(HttpOptions options, Apis apis, Clock* clock,
                                                          uint64_t id_seed, HttpObserver observer = {});

}  // namespace epic

#endif  // EPIC_SERVICES_ROUTER_HTTP_ROUTER_SITE_H_
