// `epic serve`: one node with its doors (HTTP, gRPC, admin HTTP, admin gRPC), from the settings to the last
// request.
//
// Runs on the caller's thread until SIGINT or SIGTERM, then drains and returns; a second signal ends the
// process at once. The doors open before the model is loaded and answer 503 `loading` meanwhile.
#ifndef EPIC_SERVICES_NODE_SERVE_H_
#define EPIC_SERVICES_NODE_SERVE_H_

#include <functional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "common/config/config.h"

namespace epic {

// Where a running server listens, as HOST:PORT.
struct ServeAddresses {
  std::string http, grpc, admin, admin_grpc;
  std::string model;  // alias
};

struct ServeHooks {
  std::ostream* progress = nullptr;                  // what a person wants to see while it loads
  std::function<void(const ServeAddresses&)> ready;  // once, when requests are served
};

// REQUIRES: called on the main thread before any other thread of the process was started (signals are blocked
// for all threads that follow). Errors: a bad model file, a locked or unreadable data folder, an address that
// is taken.
absl::Status Serve(const Config& config, const ServeHooks& hooks);

// What products are computed with on this CPU, such as "AVX-512 bf16".
std::string CpuInUse();

}  // namespace epic

#endif  // EPIC_SERVICES_NODE_SERVE_H_
